"""I14: from every reachable state every intent can be resolved by somebody through the verbs, without editing rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import EffectCert, FenceError, Fresh, LeaseLost
from tests.support.rows import all_of, change
from tests.support.speculation import UNDO, broken, ran
from tests.support.turmoil import Turmoil
from tests.support.world import STATES, World

UNRESOLVED = """
SELECT e.intent, e.attempt, e.state, e.branch, b.state, e.lease_expires_at IS NOT NULL
FROM effectfence.unresolved u JOIN effectfence.effects e USING (namespace, intent, attempt)
LEFT JOIN effectfence.branches b ON b.namespace = e.namespace AND b.branch_key = e.branch_key
WHERE e.namespace = :n ORDER BY e.admitted_at DESC"""
ROUNDS = 12


def let_leases_run_out(world: World) -> None:
    """Time passes: no holder is heard of any more."""
    change(
        world.engine,
        "UPDATE effectfence.effects SET lease_expires_at = clock_timestamp() - interval '1 second' "
        "WHERE namespace = :n AND lease_expires_at IS NOT NULL",
        n=world.namespace,
    )


def resolve(world: World) -> int:
    """What operators and janitors would do about everything that is unresolved; how often they had to look."""
    let_leases_run_out(world)
    before: list[Any] = []
    for looked in range(ROUNDS):
        world.fence.settle()
        left = all_of(world.engine, UNRESOLVED, n=world.namespace)
        if not left:
            return looked
        if left == before:
            # Nothing moves: plans that rest on each other. The oldest one is given up.
            world.fence.abort_branch(left[-1][3], "neither can be promoted before the other")
        before = left
        for intent, attempt, state, branch, branch_state, _ in left:
            with contextlib.suppress(FenceError):
                if state == "executed" and branch_state == "open":
                    world.fence.reconcile_branch(branch)
                elif state == "executed":
                    world.fence.promote(intent=intent)
                else:
                    world.fence.reconcile(intent, attempt=attempt, outcome="compensated", evidence=1, operator="olga")
    raise AssertionError(all_of(world.engine, UNRESOLVED, n=world.namespace))


def check_every_intent_is_done_or_runs(world: World) -> None:
    """Each is committed, so that everybody gets its certificate, or its next attempt is admitted and can commit."""
    resolve(world)
    standing = (
        "SELECT e.intent, e.state, e.domain, e.agent FROM effectfence.effects e JOIN effectfence.intents i "
        "USING (namespace, intent_key, attempt) WHERE e.namespace = :n AND i.undoes_key IS NULL"
    )
    for intent, state, domain, agent in all_of(world.engine, standing, n=world.namespace):
        assert state in {"committed", "released"}
        verdict = world.fence.prepare(world.request(intent, domain=domain, agent=agent))
        if state == "committed":
            assert verdict.replayed
        else:
            assert isinstance(verdict, Fresh)
            assert isinstance(world.fence.commit(verdict.prepared, "done at last"), EffectCert)
    assert broken(world.engine, world.namespace) == []


@pytest.mark.parametrize("branch", [None, "plan"])
@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_way_out(world: World, state: str, branch: str | None) -> None:
    world.put(state, branch=branch, compensation=UNDO)
    check_every_intent_is_done_or_runs(world)


def undoing(world: World) -> Any:
    ran(world, "mine", branch="plan", compensation=UNDO)
    world.fence.abort_branch("plan", "contradicted")
    return world.fence.prepare_compensation("mine", attempt=1, agent="undoer").prepared


def a_compensation_in_flight(world: World) -> None:
    undoing(world)


def a_failed_compensation(world: World) -> None:
    world.fence.abort(undoing(world), "connection reset")


def a_compensation_that_was_aborted(world: World) -> None:
    world.fence.abort_intent(undoing(world).intent, attempt=1, reason="wrong")


def a_compensation_that_waits(world: World) -> None:
    ticket = undoing(world)
    ran(world, "base", branch="other plan")
    world.fence.observe_late(ticket, (), ("base",))
    world.fence.commit(ticket, "refunded", closure="hold")


def a_compensation_of_a_compensation(world: World) -> None:
    ticket = undoing(world)
    world.fence.abort(ticket, "connection reset")
    world.fence.prepare_compensation(ticket.intent, attempt=1, agent="undoer", tool="charge again")


def a_report_after_the_compensation(world: World) -> None:
    ticket = undoing(world)
    world.fence.commit(ticket, "refunded")
    with pytest.raises(LeaseLost):
        world.fence.commit(world.ticket("mine").model_copy(update={"branch": "plan"}), "it ran again")


def a_branch_that_rests_on_another_one(world: World) -> None:
    ran(world, "theirs", branch="their plan")
    ran(world, "mine", branch="plan", observes=["theirs"])
    ran(world, "free", observes=["mine"])


def two_branches_that_rest_on_each_other(world: World) -> None:
    """No cycle of effects, and yet neither branch can be promoted before the other: one is rolled back."""
    ran(world, "left:1", branch="left")
    ran(world, "right:1", branch="right", observes=["left:1"])
    ran(world, "left:2", branch="left", observes=["right:1"])


def evidence_in_a_decided_branch(world: World) -> None:
    prepared = world.put("released", "mine", branch="plan")
    world.fence.reconcile_branch("plan")
    with pytest.raises(LeaseLost):
        world.fence.commit(prepared.model_copy(update={"branch": "plan"}), "it did run")


MAKES: list[Callable[[World], None]] = [
    a_compensation_in_flight,
    a_failed_compensation,
    a_compensation_that_was_aborted,
    a_compensation_that_waits,
    a_compensation_of_a_compensation,
    a_report_after_the_compensation,
    a_branch_that_rests_on_another_one,
    two_branches_that_rest_on_each_other,
    evidence_in_a_decided_branch,
]


@pytest.mark.parametrize("make", MAKES)
def test_every_speculative_situation_has_a_way_out(world: World, make: Callable[[World], None]) -> None:
    make(world)
    check_every_intent_is_done_or_runs(world)


@pytest.mark.parametrize("seed", [5, 6])
def test_whatever_many_who_work_at_once_leave_behind_can_be_resolved(world: World, seed: int) -> None:
    turmoil = Turmoil(world, seed)
    assert turmoil.run(lambda: broken(world.engine, world.namespace)) == []
    check_every_intent_is_done_or_runs(world)
