"""Gate 4 of prepare and the numbers of a domain: expectations, races, order, and the bare compare-and-set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from effectfence_pg import DomainRace, Fence, LeaseLost, MovedEntry, ReadSetEntry, ReadSetStale, ReadSetUnsettled
from effectfence_pg.sql.gates import SETTLED_EVERY
from tests.support.rows import change, one
from tests.support.world import World


def test_distinct_intents_of_one_domain_are_numbered_in_order_and_run_side_by_side(world: World) -> None:
    tickets = [world.admit(f"charge:{n}", domain="order:1") for n in range(5)]
    assert [ticket.seq for ticket in tickets] == [1, 2, 3, 4, 5]
    for ticket in reversed(tickets):
        world.fence.commit(ticket, "done")
    assert world.seq("order:1") == 5


def test_writers_of_one_domain_at_once_never_get_the_same_number(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        tickets = list(pool.map(lambda n: world.admit(f"charge:{n}", domain="order:1"), range(24)))
    assert sorted(ticket.seq for ticket in tickets) == list(range(1, 25))


def test_an_expected_number_that_holds_is_admitted_and_stands_in_the_read_set(world: World) -> None:
    world.commit("first", domain="order:1")
    prepared = world.admit("second", domain="order:1", expected_seq=1)
    assert prepared.seq == 2
    assert prepared.read_set == (ReadSetEntry(domain="order:1", seq=1),)
    assert world.edges("second") == {("first", 1, "read_set")}
    assert world.fence.commit(prepared, "done").read_set == prepared.read_set


def test_the_loser_of_a_domain_is_told_the_expected_and_the_actual_number(world: World) -> None:
    world.commit("winner", domain="order:1", expected_seq=0)
    before = world.rows()
    with pytest.raises(DomainRace) as refused:
        world.fence.prepare(world.request("loser", domain="order:1", expected_seq=0))
    error = refused.value
    assert (error.domain, error.expected, error.actual) == ("order:1", 0, 1)
    assert isinstance(error, ReadSetStale), "who handles a stale read set handles a lost race"
    assert world.rows() == before


def test_two_racers_with_the_same_expectation_admit_one(world: World) -> None:
    def race(name: str) -> str:
        try:
            world.admit(name, domain="order:1", expected_seq=0)
        except DomainRace as lost:
            return f"lost to {lost.actual}"
        return "won"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(race, [f"racer:{n}" for n in range(6)])) == ["lost to 1"] * 5 + ["won"]


def test_a_lost_race_beside_another_moved_entry_names_both(world: World) -> None:
    world.commit("w1", domain="order:1")
    world.commit("w2", domain="stock")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.prepare(
            world.request("loser", domain="order:1", expected_seq=0, read_set=[{"domain": "stock", "seq": 0}])
        )
    assert type(refused.value) is ReadSetStale
    assert set(refused.value.entries) == {MovedEntry("stock", 0, 1), MovedEntry("order:1", 0, 1)}


def test_an_expectation_passes_the_same_gates_as_a_read(world: World) -> None:
    world.admit("slow neighbour", domain="order:1")
    with pytest.raises(ReadSetUnsettled):
        world.fence.prepare(world.request("hasty", domain="order:1", expected_seq=1))


def test_without_an_expectation_a_busy_domain_is_no_obstacle(world: World) -> None:
    world.admit("slow neighbour", domain="order:1")
    assert world.admit("neighbour", domain="order:1").seq == 2


def test_a_domain_is_numbered_in_each_namespace_by_itself(world: World) -> None:
    world.commit("a", domain="order:1")
    other = Fence(world.engine, namespace=world.namespace + "-b")
    assert other.current("order:1") == 0
    assert other.reserve("order:1", 0) == 1
    assert world.fence.current("order:1") == 1


def test_reserve_takes_the_next_number_only_from_who_knows_the_last(world: World) -> None:
    assert world.fence.reserve("order:1", 0) == 1
    assert world.fence.reserve("order:1", 1) == 2
    before = world.rows()
    for expected in (0, 1, 3):
        with pytest.raises(DomainRace) as refused:
            world.fence.reserve("order:1", expected)
        assert (refused.value.domain, refused.value.expected, refused.value.actual) == ("order:1", expected, 2)
    with pytest.raises(DomainRace):
        world.fence.reserve("untouched", 1)
    assert world.rows() == before


def test_a_reserved_number_is_given_to_no_effect(world: World) -> None:
    assert world.fence.reserve("order:1", 0) == 1
    assert world.admit("charge:1", domain="order:1").seq == 2
    assert world.fence.reserve("order:1", 2) == 3
    assert world.admit("charge:2", domain="order:1").seq == 4


def test_sixteen_reservations_of_one_number_at_once_give_it_once(world: World) -> None:
    def reserve(_: int) -> int | None:
        try:
            return world.fence.reserve("order:1", 0)
        except DomainRace:
            return None

    with ThreadPoolExecutor(8) as pool:
        taken = [seq for seq in pool.map(reserve, range(16)) if seq is not None]
    assert taken == [1]


@pytest.mark.parametrize("ending", ["failed", "aborted", "released", "expired", "late", "happened", "did_not_happen"])
def test_every_end_without_a_plain_commit_advances_the_domain(world: World, ending: str) -> None:
    """Who read the number before must not go on: what the domain holds may have changed, or is known only now."""
    prepared = world.put("executed" if ending == "aborted" else "in_flight", domain="order:1")
    before = world.seq("order:1")
    if ending == "failed":
        world.fence.abort(prepared, "went wrong")
    elif ending == "aborted":
        world.fence.abort(prepared, "rolled back")
    elif ending == "released":
        world.fence.abort(prepared, "never sent", effect="none")
    elif ending == "expired":
        world.expire()
        world.fence.sweep()
    else:
        world.fence.abort(prepared, "went wrong")
        before = world.seq("order:1")
        if ending == "late":
            world.fence.commit(prepared, "done after all")
        elif ending == "happened":
            world.fence.reconcile("charge:1", attempt=1, outcome=ending, result=1, evidence="seen", operator="op")
        else:
            world.fence.clear("charge:1", attempt=1, basis="holder_dead", evidence="gone", operator="op")
    assert world.seq("order:1") == before + 1


def test_a_plain_commit_takes_no_second_number(world: World) -> None:
    world.commit(domain="order:1")
    assert world.seq("order:1") == 1


def mark(world: World) -> int:
    return one(world.engine, "SELECT settled_seq FROM effectfence.domains WHERE namespace = :n", n=world.namespace)


def pass_the_next_move_of_the_mark(world: World, domain: str) -> None:
    """As if many numbers had been taken meanwhile, with effects around the one at which the mark moves."""
    seq = world.seq(domain)
    change(
        world.engine,
        "UPDATE effectfence.domains SET seq = :seq WHERE namespace = :n",
        n=world.namespace,
        seq=seq - seq % SETTLED_EVERY + SETTLED_EVERY - 2,
    )
    for _ in range(3):
        world.commit(f"charge at {world.seq(domain)}", domain=domain)


def test_the_settled_mark_never_passes_what_is_undecided(world: World) -> None:
    """The mark keeps the look at an old domain short; an old undecided effect still unsettles it."""
    old = world.put("failed", "old", domain="busy")
    pass_the_next_move_of_the_mark(world, "busy")
    assert mark(world) < old.seq
    assert not world.fence.observe("busy")[0].settled

    world.fence.clear("old", attempt=1, basis="holder_dead", evidence="gone", operator="op")
    pass_the_next_move_of_the_mark(world, "busy")
    assert mark(world) >= 2 * SETTLED_EVERY - 1, "nothing is undecided: the mark moved"
    assert world.fence.observe("busy")[0].settled

    with pytest.raises(LeaseLost):
        world.fence.commit(old, "it did happen")
    assert not world.fence.observe("busy")[0].settled, "fenced again, below where the mark was"
    with pytest.raises(ReadSetUnsettled) as refused:
        world.fence.prepare(world.request("reader", read_set=[{"domain": "busy", "seq": world.seq("busy")}]))
    assert [b.intent for u in refused.value.entries for b in u.blockers] == ["old"]


def test_the_settled_mark_keeps_what_is_executed_in_sight(world: World) -> None:
    world.hold("held", domain="busy")
    pass_the_next_move_of_the_mark(world, "busy")
    world.admit("reader", read_set=world.fence.observe("busy"))
    assert ("held", 1, "read_set") in world.edges("reader")
