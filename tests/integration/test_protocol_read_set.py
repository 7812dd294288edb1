"""Gates 2 and 3 of prepare: parents, read sets, observations, and the edges that come of them."""

from __future__ import annotations

from typing import Any

import pytest

from effectfence_pg import (
    Fence,
    Fresh,
    MovedEntry,
    ReadSetEntry,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownIntent,
    UnknownParent,
)
from tests.support.world import World


def entry(domain: str, seq: int = 1, **more: Any) -> dict[str, Any]:
    return {"domain": domain, "seq": seq, **more}


def test_a_parent_that_nobody_minted_is_unknown(world: World) -> None:
    before = world.rows()
    with pytest.raises(UnknownParent) as refused:
        world.fence.prepare(world.request(parent="0" * 64))
    assert refused.value.parent == "0" * 64
    assert world.rows() == before


def test_a_parent_of_another_namespace_is_unknown(world: World) -> None:
    parent = world.commit("base").hash
    other = Fence(world.engine, namespace=world.namespace + "-b")
    with pytest.raises(UnknownParent):
        other.prepare(world.request(parent=parent))
    assert isinstance(world.fence.prepare(world.request(parent=parent)), Fresh)


def test_every_moved_entry_is_named_at_once(world: World) -> None:
    read = world.fence.observe("a", "b", "still", "c")
    for domain in ("a", "b", "c", "c"):
        world.commit(f"write {domain} at {world.seq(domain)}", domain=domain)
    with pytest.raises(ReadSetStale) as refused:
        world.fence.prepare(world.request(read_set=read))
    assert type(refused.value) is ReadSetStale
    assert refused.value.entries == (MovedEntry("a", 0, 1), MovedEntry("b", 0, 1), MovedEntry("c", 0, 2))
    assert refused.value.effect_ran is False


def test_a_number_from_the_future_is_stale_as_well(world: World) -> None:
    with pytest.raises(ReadSetStale) as refused:
        world.fence.prepare(world.request(read_set=[entry("untouched", 3)]))
    assert refused.value.entries == (MovedEntry("untouched", 3, 0),)


@pytest.mark.parametrize("state", ["in_flight", "failed", "aborted", "aborted_in_flight"])
def test_a_neighbour_that_is_undecided_or_rolled_back_unsettles_its_domain(world: World, state: str) -> None:
    world.put(state, "writer", domain="stock")
    read = world.fence.observe("stock")
    assert [(found.seq, found.settled) for found in read] == [(world.seq("stock"), False)]
    bare = entry("stock", world.seq("stock"))
    with pytest.raises(ReadSetUnsettled) as refused:
        world.fence.prepare(world.request(read_set=[bare]))
    [unsettled] = refused.value.entries
    assert (unsettled.domain, unsettled.seq) == ("stock", world.seq("stock"))
    stored = state.removesuffix("_in_flight") if state != "in_flight" else state
    assert [(b.intent, b.attempt, b.state) for b in unsettled.blockers] == [("writer", 1, stored)]


@pytest.mark.parametrize("state", ["committed", "executed", "released"])
def test_a_neighbour_that_is_decided_or_has_a_result_does_not(world: World, state: str) -> None:
    world.put(state, "writer", domain="stock")
    [read] = world.fence.observe("stock")
    assert read == ReadSetEntry(domain="stock", seq=world.seq("stock"))
    assert isinstance(world.fence.prepare(world.request(read_set=[read])), Fresh)


def test_a_superseded_neighbour_unsettles_nothing_once_its_successor_is_decided(world: World) -> None:
    world.put("superseded", "writer", domain="stock")
    world.fence.commit(world.ticket("writer"), "done")
    [read] = world.fence.observe("stock")
    assert read.settled
    assert isinstance(world.fence.prepare(world.request(read_set=[read])), Fresh)


def test_own_earlier_attempts_unsettle_nothing_for_the_intent_itself(world: World) -> None:
    world.admit(domain="stock", on_lease_expiry="takeover")
    world.expire()
    world.fence.sweep()
    read = entry("stock", world.seq("stock"))
    with pytest.raises(ReadSetUnsettled):
        world.fence.prepare(world.request("neighbour", read_set=[read]))
    assert isinstance(world.fence.prepare(world.request(domain="stock", read_set=[read])), Fresh)


def test_an_entry_observed_unsettled_is_refused_whatever_became_of_it(world: World) -> None:
    writer = world.admit("writer", domain="stock")
    read = world.fence.observe("stock")
    world.fence.commit(writer, "done")
    assert world.fence.observe("stock") == (ReadSetEntry(domain="stock", seq=1),)
    with pytest.raises(ReadSetUnsettled) as refused:
        world.fence.prepare(world.request(read_set=read))
    [unsettled] = refused.value.entries
    assert (unsettled.domain, unsettled.seq, unsettled.blockers) == ("stock", 1, ())


def test_a_moved_number_is_named_before_an_unsettled_domain(world: World) -> None:
    world.admit("writer", domain="busy")
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.prepare(world.request(read_set=[entry("busy"), entry("stock", 0)]))
    assert type(refused.value) is ReadSetStale
    assert refused.value.entries == (MovedEntry("stock", 0, 1),)


def test_an_unknown_parent_is_named_before_a_moved_number(world: World) -> None:
    with pytest.raises(UnknownParent):
        world.fence.prepare(world.request(parent="0" * 64, read_set=[entry("stock", 9)]))


def test_reading_a_domain_observes_its_newest_committed_effect_and_every_executed_one(world: World) -> None:
    world.commit("older", domain="stock")
    world.commit("newest", domain="stock")
    world.hold("held 1", domain="stock")
    world.hold("held 2", domain="stock")
    world.commit("elsewhere", domain="other")
    prepared = world.admit("reader", read_set=world.fence.observe("stock"))
    assert prepared.observing
    assert world.edges("reader") == {
        ("newest", 1, "read_set"),
        ("held 1", 1, "read_set"),
        ("held 2", 1, "read_set"),
    }


def test_reading_an_untouched_domain_observes_nothing(world: World) -> None:
    prepared = world.admit("reader", read_set=world.fence.observe("untouched"))
    assert not prepared.observing
    assert world.edges("reader") == set()


@pytest.mark.parametrize("state", ["executed", "committed"])
def test_observing_an_intent_that_has_a_result_gives_an_edge(world: World, state: str) -> None:
    world.put(state, "base")
    world.admit("reader", observes=["base"])
    assert world.edges("reader") == {("base", 1, "observes")}


@pytest.mark.parametrize("state", ["in_flight", "expired", "failed", "aborted", "released"])
def test_observing_an_intent_without_a_reliable_result_is_refused(world: World, state: str) -> None:
    world.put(state, "base")
    before = world.rows()
    with pytest.raises(ReadSetUnsettled) as refused:
        world.fence.prepare(world.request(observes=["base"]))
    stored = "in_flight" if state == "expired" else state
    assert [(b.intent, b.attempt, b.state) for u in refused.value.entries for b in u.blockers] == [("base", 1, stored)]
    assert world.rows() == before


def test_observing_an_intent_that_nobody_knows_is_refused_by_its_name(world: World) -> None:
    world.commit("base")
    with pytest.raises(UnknownIntent) as refused:
        world.fence.prepare(world.request(observes=["base", "nobody"]))
    assert refused.value.intent == "nobody"


def test_observing_means_the_current_attempt(world: World) -> None:
    world.put("released", "base")
    world.commit("base")
    world.admit("reader", observes=["base"])
    assert world.edges("reader") == {("base", 2, "observes")}


def test_a_parent_is_an_edge(world: World) -> None:
    parent = world.commit("base").hash
    prepared = world.admit("child", parent=parent)
    assert prepared.parent == parent
    assert world.edges("child") == {("base", 1, "parent")}
    assert world.fence.commit(prepared, "done").parent == parent


def test_one_effect_seen_in_three_ways_is_one_edge(world: World) -> None:
    parent = world.commit("base", domain="stock").hash
    world.admit("child", parent=parent, observes=["base"], read_set=world.fence.observe("stock"))
    assert len(world.edges("child")) == 1


def test_clocks_of_everything_observed_are_joined_and_ticked_for_the_agent(world: World) -> None:
    world.commit("from a", domain="a", agent="agent-a", known_clock={"agent-x": 4, "agent-a": 2})
    world.commit("from b", domain="b", agent="agent-b", known_clock={"agent-x": 9})
    parent = world.commit("from c", domain="c", agent="agent-c", known_clock={'agent-é"\n': 1}).hash
    prepared = world.admit(
        agent="agent-b",
        read_set=world.fence.observe("a"),
        observes=["from b"],
        parent=parent,
        known_clock={"agent-y": 0},
    )
    expected = {"agent-a": 3, "agent-b": 2, "agent-c": 1, "agent-x": 9, "agent-y": 0, 'agent-é"\n': 1}
    assert prepared.vector_clock.root == expected
    certificate = world.fence.commit(prepared, "done")
    assert certificate.vector_clock.root == expected
    assert certificate.verify()


def test_a_read_set_stands_in_the_certificate_in_the_callers_order(world: World) -> None:
    read = world.fence.observe("z", "a", "m")
    certificate = world.commit(read_set=read)
    assert certificate.wire()["read_set"] == [entry("z", 0), entry("a", 0), entry("m", 0)]
