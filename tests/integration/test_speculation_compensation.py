"""Compensation: what was rolled back is undone by an effect of its own, keyed by the attempt that it undoes, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from effectfence_pg import (
    EffectCert,
    FenceError,
    Fresh,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    InvalidRequest,
    LeaseLost,
    NotReconcilable,
    PreparedEffect,
    Replay,
    UnknownIntent,
)
from tests.support.rows import all_of
from tests.support.speculation import UNDO, decided, ran
from tests.support.witness import Witness
from tests.support.world import World


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """What really happened, counted outside of the database."""
    return Witness(tmp_path / "witness")


def rolled_back(world: World, intent: str = "mine", **more: object) -> PreparedEffect:
    """An effect that ran and was rolled back by a decision."""
    prepared = ran(world, intent, branch=f"plan:{intent}", **{"compensation": UNDO, **more})
    world.fence.abort_branch(f"plan:{intent}", "contradicted")
    return prepared


def undoing(world: World, intent: str = "mine", **more: object) -> PreparedEffect:
    """The ticket of a new compensation."""
    verdict = world.fence.prepare_compensation(intent, **{"attempt": 1, "agent": "undoer", **more})
    assert isinstance(verdict, Fresh)
    return verdict.prepared


def keys(world: World) -> list[tuple[str, str, int]]:
    """Every compensation with the intent and the attempt that it undoes."""
    return all_of(
        world.engine,
        "SELECT c.intent, t.intent, c.undoes_attempt FROM effectfence.intents c JOIN effectfence.intents t "
        "ON t.namespace = c.namespace AND t.intent_key = c.undoes_key WHERE c.namespace = :n ORDER BY t.intent, c.undoes_attempt",
        n=world.namespace,
    )


def test_it_is_an_effect_of_its_own_with_the_registered_tool(world: World) -> None:
    rolled_back(world, domain="order:1")
    seq = world.seq("order:1")
    ticket = undoing(world)
    assert (ticket.tool, ticket.args, ticket.domain, ticket.seq) == (UNDO["tool"], UNDO["args"], "order:1", seq + 1)
    assert (ticket.agent, ticket.branch, world.edges(ticket.intent)) == ("undoer", None, set())
    assert keys(world) == [(ticket.intent, "mine", 1)]
    certificate = world.fence.commit(ticket, "refunded")
    assert isinstance(certificate, EffectCert)
    assert (certificate.tool, certificate.result, certificate.verify()) == ("refund", "refunded", True)


def test_its_commit_releases_the_target_in_the_same_transaction_and_it_can_run_again(world: World) -> None:
    rolled_back(world)
    ticket = undoing(world)
    assert world.state("mine") == "aborted"
    seq = world.seq("of:mine")
    world.fence.commit(ticket, "refunded")
    assert world.history("mine")[-1] == (1, "aborted", "released", "compensated", "undoer")
    assert world.seq("of:mine") == seq + 1
    wrote = (
        "SELECT DISTINCT xmin::text FROM effectfence.transitions WHERE namespace = :n AND cause = 'compensated' "
        "UNION SELECT xmin::text FROM effectfence.certificates WHERE namespace = :n"
    )
    assert len(all_of(world.engine, wrote, n=world.namespace)) == 1
    origin = (
        "SELECT o.intent FROM effectfence.transitions t JOIN effectfence.intents o ON o.namespace = t.namespace "
        "AND o.intent_key = t.origin_key WHERE t.namespace = :n AND t.cause = 'compensated'"
    )
    assert all_of(world.engine, origin, n=world.namespace) == [ticket.intent]
    assert world.admit("mine", branch="another plan").attempt == 2


@pytest.mark.parametrize(("left", "right"), [(("a", 11), ("a1", 1)), (("1:a", 1), ("a", 1)), (("x", 1), ("x:1", 1))])
def test_attempts_whose_names_collide_when_joined_are_undone_apart(
    world: World, left: tuple[str, int], right: tuple[str, int]
) -> None:
    for intent, attempt in (left, right):
        for _ in range(attempt - 1):
            world.put("released", intent)
        ran(world, intent, branch=f"plan:{intent}", compensation=UNDO)
        world.fence.abort_branch(f"plan:{intent}", "contradicted")
    tickets = [undoing(world, intent, attempt=attempt) for intent, attempt in (left, right)]
    assert len({ticket.intent for ticket in tickets}) == 2
    assert {(intent, attempt) for _, intent, attempt in keys(world)} == {left, right}
    world.fence.commit(tickets[0], "refunded")
    assert (world.state(left[0]), world.state(right[0])) == ("released", "aborted")


def test_each_attempt_has_a_compensation_of_its_own(world: World) -> None:
    for attempt in (1, 2):
        ran(world, "mine", branch=f"plan:{attempt}", compensation=UNDO)
        world.fence.abort_branch(f"plan:{attempt}", "contradicted")
        world.fence.commit(undoing(world, attempt=attempt), "refunded")
    assert [attempt for _, _, attempt in keys(world)] == [1, 2]
    assert isinstance(world.fence.prepare_compensation("mine", attempt=1, agent="undoer"), Replay)


def test_no_intent_of_a_user_can_stand_in_its_place(world: World) -> None:
    """Its key are columns; the name that people see is kept for it."""
    rolled_back(world)
    taken = undoing(world).intent
    world.fence.abort(world.ticket(taken), "never sent", effect="none")
    for name in (taken, taken.replace(":1:", ":2:")):
        before = world.rows()
        with pytest.raises(InvalidRequest) as refused:
            world.fence.prepare(world.request(name))
        assert refused.value.field == "intent"
        assert world.rows() == before
    assert world.admit("compensation:of my order").attempt == 1
    assert undoing(world).attempt == 2


def test_it_runs_once_whoever_asks_and_is_replayed_afterwards(world: World, witness: Witness) -> None:
    ran(world, "base", branch="plan", compensation=UNDO)
    ran(world, "top", observes=["base"], compensation={"tool": "unpublish"})
    ran(world, "plain", observes=["base"])
    effects = world.fence.abort_branch("plan", "contradicted").effects

    def undo(ticket: PreparedEffect) -> str:
        witness.happened(ticket.tool)
        return "undone"

    first = world.fence.compensate(effects, undo, agent="undoer")
    assert [certificate.tool for certificate in first] == ["unpublish", "refund"], "dependents first"
    assert world.fence.compensate(effects, undo, agent="somebody else") == first
    assert (witness.count("refund"), witness.count("unpublish"), witness.count()) == (1, 1, 2)
    assert (world.state("base"), world.state("top"), world.state("plain")) == ("released", "released", "aborted")


def test_a_compensation_that_raises_is_fenced_and_stops_what_comes_after_it(world: World, witness: Witness) -> None:
    ran(world, "base", branch="plan", compensation=UNDO)
    ran(world, "top", observes=["base"], compensation={"tool": "unpublish"})
    effects = world.fence.abort_branch("plan", "contradicted").effects

    def fail(ticket: PreparedEffect) -> str:
        witness.happened(ticket.tool)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        world.fence.compensate(effects, fail, agent="undoer")
    assert [line["intent"] for line in witness.lines()] == ["unpublish"]
    with pytest.raises(IntentFailed):
        world.fence.compensate(effects, fail, agent="undoer")
    assert witness.count() == 1
    assert (world.state("base"), world.state("top")) == ("aborted", "aborted")


def test_while_it_runs_its_target_is_closed_to_late_completion_and_to_happened(world: World) -> None:
    slow = world.put("expired", "mine", compensation=UNDO)
    world.fence.sweep()
    undoing(world)
    with pytest.raises(LeaseLost) as refused:
        world.fence.commit(slow, "it did run")
    assert refused.value.evidence_kept
    assert (world.state("mine"), world.effect("mine")["result"]) == ("failed", '"it did run"')
    before = world.rows()
    with pytest.raises(NotReconcilable):
        world.fence.reconcile("mine", attempt=1, outcome="happened", evidence=1, operator="olga")
    with pytest.raises(NotReconcilable):
        world.fence.reconcile("mine", attempt=1, outcome="happened", evidence=1, operator="olga", over=True)
    with pytest.raises(LeaseLost):
        world.fence.commit(slow, "it did run")
    assert world.rows() == before
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request("mine"))


def test_it_ignores_what_its_target_unsettles_and_nothing_else(world: World) -> None:
    """What it reads itself, of the domain that it repairs."""
    rolled_back(world, domain="order:1")
    ticket = undoing(world)
    entry = {"domain": "order:1", "seq": ticket.seq}
    with pytest.raises(FenceError):
        world.fence.prepare(world.request("reader", read_set=[entry]))
    assert world.fence.observe_late(ticket, (entry,)).read_set[0].seq == ticket.seq
    assert isinstance(world.fence.commit(ticket, "refunded"), EffectCert)

    rolled_back(world, "other", domain="order:2")
    world.put("failed", "neighbour", domain="order:2")
    ticket = undoing(world, "other")
    with pytest.raises(FenceError) as refused:
        world.fence.observe_late(ticket, ({"domain": "order:2", "seq": world.seq("order:2")},))
    assert [b.intent for entry in refused.value.entries for b in entry.blockers] == ["neighbour"]
    assert isinstance(world.fence.commit(ticket, "refunded"), EffectCert)


def test_neighbours_that_committed_since_do_not_stand_in_its_way(world: World) -> None:
    rolled_back(world, domain="order:1")
    world.commit("neighbour", domain="order:1")
    assert isinstance(world.fence.commit(undoing(world), "refunded"), EffectCert)
    assert world.state("neighbour") == "committed"


TARGETS: dict[str, tuple[type[FenceError], Callable[[World], object]]] = {
    "in_flight": (IntentInFlight, lambda w: w.admit("mine")),
    "aborted_in_flight": (IntentInFlight, lambda w: w.put("aborted_in_flight", "mine")),
    "executed": (NotReconcilable, lambda w: decided(w, "mine")),
    "committed": (NotReconcilable, lambda w: w.commit("mine")),
    "released": (NotReconcilable, lambda w: w.put("released", "mine")),
    "superseded": (NotReconcilable, lambda w: w.put("superseded", "mine")),
    "nobody": (UnknownIntent, lambda w: None),
}


@pytest.mark.parametrize("state", TARGETS)
def test_only_a_fenced_attempt_whose_tool_is_over_is_undone(world: World, state: str) -> None:
    kind, make = TARGETS[state]
    make(world)
    before = world.rows()
    with pytest.raises(kind):
        world.fence.prepare_compensation("mine", attempt=1, agent="undoer", tool="refund")
    assert world.rows() == before


def test_what_undoes_it_is_registered_or_given(world: World) -> None:
    world.put("failed", "mine")
    with pytest.raises(InvalidRequest) as refused:
        undoing(world)
    assert refused.value.field == "tool"
    ticket = undoing(world, tool="void", args={"why": "asked"})
    assert (ticket.tool, ticket.args) == ("void", {"why": "asked"})
    with pytest.raises(IntentMismatch):
        undoing(world, tool="refund")
    with pytest.raises(IntentInFlight):
        undoing(world, tool="void", args={"why": "asked"})
    assert isinstance(world.fence.commit(ticket, "void"), EffectCert)
    assert world.state("mine") == "released"
    rolled_back(world, "registered")
    assert undoing(world, "registered", tool="write off").tool == "write off"


def test_the_result_that_was_undone_is_nothing_new_when_its_holder_repeats_it(world: World) -> None:
    """Its acknowledgement may have been lost; the intent stays runnable."""
    prepared = rolled_back(world)
    result = world.effect("mine")["result"]
    [effect] = [effect for effect in world.fence.abort_branch("plan:mine", "again").effects if effect.due]
    world.fence.compensate([effect], lambda _ticket: "undone", agent="undoer")
    before = world.rows()
    with pytest.raises(LeaseLost):
        world.fence.commit(prepared, json.loads(result))
    assert world.rows() == before
    assert isinstance(world.fence.prepare(world.request("mine")), Fresh)
