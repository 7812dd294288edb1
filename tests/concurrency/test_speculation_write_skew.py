"""Decisions that contradict each other, both executed before either commits: one of them stands, and nothing is torn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import FenceError, FenceRepository, Fresh
from tests.support.overlapping import CONFLICT, Pair, overlap
from tests.support.speculation import UNDO, branch_state, broken, decided, ran, states
from tests.support.world import World


def ask(world: World, intent: str, **more: Any) -> Any:
    return world.request(intent, **more)


def a_base(world: World) -> dict[str, Any]:
    ran(world, "base", branch="plan")
    return {"running": world.admit("running", domain="d:running")}


def a_dependent(world: World) -> dict[str, Any]:
    decided(world, "base")
    return {"running": world.admit("running", observes=["base"])}


def a_chain(world: World) -> dict[str, Any]:
    decided(world, "base")
    return {"top": ran(world, "top", observes=["base"])}


def asked_for(world: World) -> dict[str, Any]:
    ran(world, "before", branch="plan")
    prepared = world.admit("base", observes=["before"])
    with contextlib.suppress(FenceError):
        world.fence.commit(prepared, "done")
    world.fence.promote(branch="plan")
    assert world.state("base") == "executed"
    return {}


def unknown(world: World) -> dict[str, Any]:
    prepared = world.put("expired", "base", compensation=UNDO, on_lease_expiry="takeover")
    world.fence.sweep()
    return {"prepared": prepared}


def undoing(repository: FenceRepository, *_: Any) -> object:
    return repository.prepare_compensation("base", attempt=1, agent="undoer")


def is_undone(world: World) -> bool:
    return any(row[-2] is not None for row in world.rows()["intents"])


def state_is(intent: str, state: str) -> Callable[[World], bool]:
    return lambda world: world.state(intent) == state


def plan_is(state: str) -> Callable[[World], bool]:
    return lambda world: branch_state(world, "plan")[0] == state


def is_on_record(intent: str) -> Callable[[World], bool]:
    return lambda world: any(intent in row for row in world.rows()["intents"])


def abort_plan(repository: FenceRepository, *_: Any) -> object:
    return repository.abort_branch("plan", "contradicted")


def promote_plan(repository: FenceRepository, *_: Any) -> object:
    return repository.promote(branch="plan")


def abort_base(repository: FenceRepository, *_: Any) -> object:
    return repository.abort_intent("base", attempt=1, reason="contradicted")


PAIRS: dict[str, Pair] = {
    "abort of a branch, admission of a reader": Pair(
        a_base,
        abort_plan,
        lambda repository, world, _: repository.prepare(ask(world, "reader", observes=["base"])),
        plan_is("aborted"),
        is_on_record("reader"),
        then={"left": "read_set_unsettled"},
    ),
    "abort of a branch, admission of a reader of its domain": Pair(
        a_base,
        abort_plan,
        lambda repository, world, _: repository.prepare(
            ask(world, "reader", read_set=[{"domain": "of:base", "seq": 1}])
        ),
        plan_is("aborted"),
        is_on_record("reader"),
        then={"left": "read_set_stale"},
    ),
    "abort of a branch, late observation": Pair(
        a_base,
        abort_plan,
        lambda repository, _, made: repository.observe_late(made["running"], (), ("base",)),
        plan_is("aborted"),
        lambda world: world.edges("running") != set(),
        then={"left": "read_set_unsettled"},
    ),
    "abort of a branch, admission of a member": Pair(
        a_base,
        abort_plan,
        lambda repository, world, _: repository.prepare(ask(world, "member", branch="plan")),
        plan_is("aborted"),
        is_on_record("member"),
        waits="left",
        then={"left": "branch_decided"},
    ),
    "promotion of a branch, admission of a member": Pair(
        a_base,
        promote_plan,
        lambda repository, world, _: repository.prepare(ask(world, "member", branch="plan")),
        plan_is("committed"),
        is_on_record("member"),
        waits="left",
        then={"left": "branch_decided", "right": "closure_pending"},
    ),
    "promotion of a branch, abort of it": Pair(
        a_base,
        promote_plan,
        abort_plan,
        plan_is("committed"),
        plan_is("aborted"),
        waits="both",
        then={"left": "branch_decided", "right": "closure_aborted"},
    ),
    "abort of an intent, commit of its dependent": Pair(
        a_dependent,
        abort_base,
        lambda repository, _, made: repository.commit(made["running"], "done", closure="hold"),
        state_is("running", "aborted"),
        state_is("running", "executed"),
        waits="both",
        then={"left": "closure_aborted"},
    ),
    "abort of an intent, promotion of its dependent": Pair(
        a_chain,
        abort_base,
        lambda repository, *_: repository.promote(intent="top"),
        state_is("top", "aborted"),
        state_is("top", "committed"),
        waits="both",
        then={"left": "closure_aborted", "right": "commit_conflict"},
    ),
    "abort of an intent, its own commit": Pair(
        a_chain,
        abort_base,
        lambda repository, world, _: repository.commit(world.ticket("base"), "done"),
        state_is("base", "aborted"),
        state_is("base", "committed"),
        waits="both",
        then={"left": "closure_aborted", "right": "commit_conflict"},
    ),
    "settling, abort of what was asked for": Pair(
        asked_for,
        lambda repository, *_: repository.settle(),
        abort_base,
        state_is("base", "committed"),
        state_is("base", "aborted"),
        waits="both",
        then={"left": "commit_conflict"},
    ),
    "admission of a compensation, late completion": Pair(
        unknown,
        undoing,
        lambda repository, _, made: repository.commit(made["prepared"], "it did run"),
        is_undone,
        state_is("base", "committed"),
        waits="both",
        then={"left": "lease_lost", "right": "not_reconcilable"},
    ),
    "admission of a compensation, a judgement that it happened": Pair(
        unknown,
        undoing,
        lambda repository, *_: repository.reconcile(
            "base", attempt=1, outcome="happened", result=1, evidence=1, operator="olga"
        ),
        is_undone,
        state_is("base", "committed"),
        waits="both",
        then={"left": "not_reconcilable", "right": "not_reconcilable"},
    ),
    "admission of a compensation, takeover": Pair(
        unknown,
        undoing,
        lambda repository, world, _: repository.prepare(ask(world, "base")),
        is_undone,
        lambda world: world.state("base", 1) == "superseded",
        waits="both",
        then={"left": "intent_failed", "right": "not_reconcilable"},
    ),
    "two admissions of a compensation": Pair(
        unknown, undoing, undoing, is_undone, is_undone, waits="both", then={"left": "intent_in_flight"}
    ),
}


ORDERS = [
    (pair, first, commits)
    for pair in PAIRS
    for first in ("left", "right")
    for commits in (("first",) if PAIRS[pair].waits_after(first) else ("first", "second"))
]


@pytest.mark.parametrize(("name", "first", "commits"), ORDERS)
def test_of_two_decisions_that_contradict_each_other_one_stands(
    world: World, name: str, first: str, commits: str
) -> None:
    pair = PAIRS[name]
    outcomes = overlap(world, pair, first=first, commits=commits)
    assert list(outcomes.values()).count(CONFLICT) == 1, outcomes
    stood = "right" if outcomes["left"] == CONFLICT else "left"
    assert not isinstance(outcomes[stood], Exception), outcomes
    if pair.left is not pair.right:
        assert (pair.left_stands(world), pair.right_stands(world)) == (stood == "left", stood == "right")
    else:
        assert pair.left_stands(world)
        assert isinstance(outcomes[stood], Fresh)
        stood = "left"
    assert broken(world.engine, world.namespace) == []

    # The loser runs again, as a fence of its own would, and is told what stands.
    again = getattr(pair, "right" if stood == "left" else "left")
    made = {"running": world.ticket("running")} if "running" in states_on_record(world) else {}
    made["prepared"], code = world.ticket("base"), None
    with world.engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        try:
            again(FenceRepository(connection, namespace=world.namespace), world, made)
        except FenceError as error:
            code = error.code
        connection.commit()
    assert code == pair.then.get(stood)
    assert broken(world.engine, world.namespace) == []


def states_on_record(world: World) -> dict[str, str]:
    names = {row[5] for row in world.rows()["intents"]}
    return states(world, *names)
