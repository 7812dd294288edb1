"""I9: every transition is on record with cause and actor; a start without a completion is visible in one query."""

from __future__ import annotations

import pytest

from effectfence_pg import ClosureAborted, ClosurePending, FenceError, LeaseLost, ReadSetStale
from effectfence_pg.protocol.states import TRANSITIONS, Cause, State
from tests.support.rows import all_of
from tests.support.world import STATES, World

OPEN = {"in_flight", "expired", "executed", "failed", "aborted", "aborted_in_flight"}


def test_what_was_started_and_is_not_decided_is_one_query(world: World) -> None:
    for state in STATES:
        world.put(state, state)
    unresolved = all_of(
        world.engine,
        "SELECT intent, attempt, state, has_result FROM effectfence.unresolved WHERE namespace = :n "
        "AND intent NOT LIKE 'base:%' ORDER BY intent",
        n=world.namespace,
    )
    assert {row[0] for row in unresolved} == OPEN | {"superseded"}
    assert ("superseded", 2, "in_flight", False) in unresolved, "the successor runs; the superseded attempt is decided"
    assert ("aborted", 1, "aborted", True) in unresolved
    ages = all_of(
        world.engine, "SELECT age > interval '0' FROM effectfence.unresolved WHERE namespace = :n", n=world.namespace
    )
    assert all(ages)


def live(world: World) -> None:
    """Every kind of transition that the verbs can make, each by its verb."""
    world.commit("committed")
    for state in ("failed", "released", "aborted", "aborted_in_flight", "superseded", "expired"):
        world.put(state, state)
    world.fence.sweep()
    fence, superseded = world.fence, world.ticket("superseded")
    with pytest.raises(FenceError):
        fence.commit(
            superseded.model_copy(update={"attempt": 1, "token": world.effect("superseded", 1)["token"], "seq": 1}), 1
        )
    fence.commit(world.ticket("expired"), "late completion")
    with pytest.raises(LeaseLost):
        fence.commit(world.ticket("released"), "late evidence")
    with pytest.raises(ClosureAborted):
        fence.commit(world.ticket("aborted_in_flight"), "reported")
    fence.reconcile("aborted_in_flight", attempt=1, outcome="happened", evidence=1, operator="o", over=True)
    fence.reconcile("aborted", attempt=1, outcome="compensated", evidence=1, operator="o")
    fence.clear("failed", attempt=1, basis="holder_dead", evidence=1, operator="o")
    fence.reconcile("released", attempt=1, outcome="happened", evidence=1, operator="o")
    stale = world.admit("stale", read_set=fence.observe("stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale):
        fence.commit(stale, "done")
    world.hold("base")
    pending = world.admit("pending", observes=["base"])
    with pytest.raises(ClosurePending):
        fence.commit(pending, "done")
    fallen = world.admit("fallen", observes=["base"])
    world.edit("base", state="failed")
    with pytest.raises(ClosureAborted):
        fence.commit(fallen, "done")
    speculate(world)


def speculate(world: World) -> None:
    """Take effects through every decision about a plan."""
    fence = world.fence
    fence.commit(world.admit("kept", branch="kept"), "done")
    fence.commit(world.admit("waits", observes=["kept"]), "done", closure="hold")
    with pytest.raises(ClosurePending):
        fence.commit(world.admit("asked", observes=["kept"]), "done")
    fence.promote(branch="kept")
    fence.settle()
    fence.promote(intent="waits")
    fence.commit(world.admit("dropped", branch="dropped", compensation={"tool": "undo"}), "done")
    undone = fence.abort_branch("dropped", "contradicted")
    assert len(fence.compensate(undone.effects, lambda _ticket: "undone", agent="undoer")) == 1
    fence.abort_intent("given up", attempt=world.admit("given up").attempt, reason="no longer wanted")


def test_the_record_of_every_effect_leads_from_its_admission_to_its_state(world: World) -> None:
    live(world)
    seen = set()
    for intent, attempt in all_of(
        world.engine, "SELECT intent, attempt FROM effectfence.effects WHERE namespace = :n", n=world.namespace
    ):
        before = None
        for at, source, target, cause, actor in world.history(intent):
            if at != attempt:
                continue
            assert source == before
            assert State(target)
            assert Cause(cause)
            assert actor
            if source is not None and source != target:
                assert State(target) in TRANSITIONS[State(source)]
            seen.add(cause)
            before = target
        # Of `base`, the last step was written behind the library's back.
        assert intent == "base" or before == world.state(intent, attempt)
    assert seen == {cause.value for cause in Cause}


def test_starts_are_counted_and_not_only_completions(world: World) -> None:
    for state in STATES:
        world.put(state, state)
    counted = all_of(
        world.engine,
        "SELECT count(*) FILTER (WHERE cause = 'admitted'), count(*) FILTER (WHERE to_state = 'committed') "
        "FROM effectfence.transitions WHERE namespace = :n",
        n=world.namespace,
    )
    assert counted == [(len(STATES) + 2, 1)], "with the base of the aborted one and the successor of the superseded one"


def test_times_on_record_are_the_databases_and_go_forward(world: World) -> None:
    live(world)
    backward = all_of(
        world.engine,
        "SELECT 1 FROM effectfence.transitions a JOIN effectfence.transitions b USING (namespace, intent_key, attempt) "
        "WHERE namespace = :n AND a.version < b.version AND a.at > b.at "
        "UNION ALL SELECT 1 FROM effectfence.transitions WHERE namespace = :n AND at > clock_timestamp()",
        n=world.namespace,
    )
    assert backward == []
