"""observe_late: an effect in flight observes more, through the gates of its admission, or stays as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import (
    ClosureAborted,
    ClosurePending,
    EffectCert,
    FenceConfig,
    FenceError,
    InvalidRequest,
    LeaseLost,
    ReadSetEntry,
    ReadSetStale,
    ReadSetUnsettled,
    TicketMismatch,
    UnknownIntent,
    UnknownTicket,
)
from tests.support.rows import one
from tests.support.speculation import broken, falls, ran, states
from tests.support.world import World


def test_what_was_observed_late_counts_as_if_it_had_been_from_the_start(world: World) -> None:
    ran(world, "base", branch="plan", domain="stock", agent="agent-b")
    prepared = world.admit("late", agent="agent-l", read_set=world.fence.observe("prices"))
    stock = world.fence.observe("stock")
    seen = world.fence.observe_late(prepared, stock, ("base",))
    assert world.edges("late") == {("base", 1, "observes")}
    assert dict(seen.vector_clock.root) == {"agent-b": 1, "agent-l": 2}
    assert [(entry.domain, entry.seq) for entry in seen.read_set] == [("prices", 0), ("stock", 1)]
    assert seen.observing
    with pytest.raises(ClosurePending) as refused:
        world.fence.commit(seen, "done")
    assert [blocker.intent for blocker in refused.value.blockers] == ["base"]
    world.fence.promote(branch="plan")
    certificate = world.fence.commit(seen, "done")
    assert isinstance(certificate, EffectCert)
    assert (certificate.read_set, certificate.vector_clock) == (seen.read_set, seen.vector_clock)
    assert certificate.verify()
    audit = "SELECT hash_holds AND columns_hold AND edges_hold AND clock_holds FROM effectfence.certificate_audit "
    assert one(world.engine, audit + "WHERE namespace = :n AND intent = 'late'", n=world.namespace)


def test_a_domain_read_late_gives_edges_to_its_executed_effects_and_its_newest_committed_one(world: World) -> None:
    world.commit("old", domain="stock")
    world.commit("new", domain="stock")
    ran(world, "open", domain="stock", branch="plan")
    prepared = world.admit("late")
    world.fence.observe_late(prepared, world.fence.observe("stock"))
    assert world.edges("late") == {("new", 1, "read_set"), ("open", 1, "read_set")}


def test_when_what_was_observed_late_is_rolled_back_the_effect_falls_with_it(world: World) -> None:
    base = ran(world, "base", branch="plan")
    prepared = world.admit("late")
    world.fence.observe_late(prepared, (), ("base",))
    ran(world, "second", branch="other", observes=["base"])
    world.fence.abort(base, "contradicted")
    assert states(world, "late", "second") == {"late": "aborted", "second": "aborted"}
    assert falls(world)["late"] == ("cascade", "base", "agent-a")
    assert world.effect("late")["lease_expires_at"] == prepared.lease_expires_at
    assert broken(world.engine, world.namespace) == []


def test_a_read_set_grown_late_is_checked_at_commit(world: World) -> None:
    prepared = world.admit("late")
    seen = world.fence.observe_late(prepared, world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    for ticket in (prepared, seen):
        with pytest.raises(ReadSetStale) as refused:
            world.fence.commit(ticket, "done")
        assert [(entry.domain, entry.seq, entry.live) for entry in refused.value.entries] == [("stock", 0, 1)]
        assert refused.value.effect_ran


def test_the_own_domain_read_late_holds_until_somebody_moves_it_again(world: World) -> None:
    """Its own number is older than what it saw there, and is no reason to call that stale."""
    for intent, moves in (("holds", False), ("stale", True)):
        prepared = world.admit(intent, domain=f"stock:{intent}")
        world.commit(f"neighbour of {intent}", domain=f"stock:{intent}")
        seen = world.fence.observe_late(prepared, (ReadSetEntry(domain=f"stock:{intent}", seq=2),))
        if moves:
            world.commit(f"another of {intent}", domain=f"stock:{intent}")
            for _ in range(2):
                with pytest.raises(ReadSetStale) as refused:
                    world.fence.commit(seen, "done")
                assert [(entry.seq, entry.live >= 3) for entry in refused.value.entries] == [(2, True)]
        else:
            assert isinstance(world.fence.commit(seen, "done"), EffectCert)


def test_an_older_ticket_still_commits_all_that_was_observed(world: World) -> None:
    world.commit("restock", domain="stock")
    prepared = world.admit("late")
    world.fence.observe_late(prepared, world.fence.observe("stock"))
    certificate = world.fence.commit(prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert [entry.domain for entry in certificate.read_set] == ["stock"]


@pytest.mark.parametrize("again", ["with the same ticket", "with the newer ticket", "by a call whose answer was lost"])
def test_what_was_observed_twice_is_on_record_once(world: World, again: str) -> None:
    world.commit("restock", domain="stock")
    entries = world.fence.observe("stock", "prices")
    prepared = world.admit("late")
    operation = world.fence._calls.observe_late(prepared, entries[:1], ("restock",))
    seen = world.fence._run(operation)
    if again == "by a call whose answer was lost":
        before = world.rows()
        assert world.fence._run(operation) == seen
        assert world.rows() == before
        return
    ticket = prepared if again == "with the same ticket" else seen
    more = world.fence.observe_late(ticket, entries, ("restock",))
    assert [entry.domain for entry in more.read_set] == ["stock", "prices"]
    assert json.loads(world.effect("late")["read_set"]) == [
        {"domain": "stock", "seq": 1},
        {"domain": "prices", "seq": 0},
    ]
    assert len(world.effect("late")["read_keys"]) == 2
    certificate = world.fence.commit(more, "done")
    assert isinstance(certificate, EffectCert)
    assert certificate.read_set == more.read_set


def test_a_domain_read_at_another_number_before_is_stale(world: World) -> None:
    """Of a ticket that knows it, and of an older one that does not."""
    prepared = world.admit("late")
    seen = world.fence.observe_late(prepared, world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    before = world.rows()
    for ticket in (prepared, seen):
        with pytest.raises(ReadSetStale) as refused:
            world.fence.observe_late(ticket, world.fence.observe("stock"))
        assert [(entry.domain, entry.seq, entry.live) for entry in refused.value.entries] == [("stock", 0, 1)]
        assert world.rows() == before


def test_that_it_was_read_at_another_number_is_said_before_that_it_is_unsettled(world: World) -> None:
    prepared = world.admit("late")
    seen = world.fence.observe_late(prepared, world.fence.observe("stock"))
    world.admit("writer", domain="stock")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.observe_late(seen, world.fence.observe("stock"))
    assert type(refused.value) is ReadSetStale


Case = Callable[[World, Any], tuple[type[FenceError], tuple[Any, ...], tuple[str, ...]]]


def stale(world: World, _: Any) -> Any:
    return ReadSetStale, ({"domain": "stock", "seq": 7},), ()


def unsettled(world: World, _: Any) -> Any:
    world.admit("writer", domain="stock")
    return ReadSetUnsettled, ({"domain": "stock", "seq": 1},), ()


def doubted(world: World, _: Any) -> Any:
    return ReadSetUnsettled, (ReadSetEntry(domain="stock", seq=0, settled=False),), ()


def unknown(world: World, _: Any) -> Any:
    return UnknownIntent, (), ("nobody",)


def in_flight(world: World, _: Any) -> Any:
    world.admit("running")
    return ReadSetUnsettled, (), ("running",)


def dead(world: World, _: Any) -> Any:
    world.put("failed", "dead")
    return ReadSetUnsettled, (), ("dead",)


def itself(world: World, prepared: Any) -> Any:
    return ReadSetUnsettled, (), (prepared.intent,)


def twice(world: World, _: Any) -> Any:
    return InvalidRequest, ({"domain": "stock", "seq": 0}, {"domain": "stock", "seq": 0}), ()


def malformed(world: World, _: Any) -> Any:
    return InvalidRequest, ({"domain": "stock", "seq": -1},), ()


@pytest.mark.parametrize("make", [stale, unsettled, doubted, unknown, in_flight, dead, itself, twice, malformed])
def test_a_refused_observation_leaves_the_effect_as_it_was(world: World, make: Case) -> None:
    """Byte for byte, and so that its holder can still go on or give up."""
    ran(world, "base", branch="plan")
    prepared = world.admit("late")
    kind, entries, intents = make(world, prepared)
    before = world.rows()
    with pytest.raises(kind) as refused:
        world.fence.observe_late(prepared, entries, ("base", *intents))
    assert type(refused.value) is kind
    assert world.rows() == before
    assert world.fence.abort(prepared, "it has read dirty data", effect="none").state == "released"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("executed", LeaseLost),
        ("committed", LeaseLost),
        ("failed", LeaseLost),
        ("released", LeaseLost),
        ("superseded", LeaseLost),
        ("aborted", ClosureAborted),
        ("aborted_in_flight", ClosureAborted),
    ],
)
def test_only_an_effect_in_flight_observes(world: World, state: str, kind: type[FenceError]) -> None:
    """So an effect that others may have observed never observes anything more."""
    world.commit("restock", domain="stock")
    prepared = world.put(state)
    before = world.rows()
    with pytest.raises(kind):
        world.fence.observe_late(prepared, ({"domain": "stock", "seq": 1},), ("restock",))
    assert world.rows() == before


def test_a_ticket_of_somebody_else_or_an_edited_one_observes_nothing(world: World) -> None:
    prepared, other = world.admit("late"), world.admit("other")
    before = world.rows()
    with pytest.raises(UnknownTicket):
        world.fence.observe_late(prepared.model_copy(update={"token": other.token}))
    with pytest.raises(TicketMismatch):
        world.fence.observe_late(prepared.model_copy(update={"agent": "agent-b"}))
    assert world.rows() == before


def test_an_expired_lease_that_nobody_has_fenced_still_observes(world: World) -> None:
    world.commit("restock", domain="stock")
    prepared = world.put("expired")
    assert world.fence.observe_late(prepared, world.fence.observe("stock")).observing
    assert isinstance(world.fence.commit(prepared, "done"), EffectCert)


def test_what_is_observed_late_is_limited_like_what_is_observed_at_once(world: World) -> None:
    small = World(world.engine, world.namespace, FenceConfig(max_observed_intents=1, max_read_set_entries=1))
    prepared = small.admit("late")
    before = small.rows()
    with pytest.raises(InvalidRequest) as refused:
        small.fence.observe_late(prepared, small.fence.observe("a", "b"))
    assert refused.value.field == "read_set"
    with pytest.raises(InvalidRequest) as refused:
        small.fence.observe_late(prepared, (), ("a", "b"))
    assert refused.value.field == "observes"
    assert small.rows() == before
