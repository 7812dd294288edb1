from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import MAX_COUNT, VectorClock

unhurried = settings(deadline=None)
agents = st.sampled_from(["a", "b", "c", "", "é"])
counts = st.integers(0, 3) | st.integers(0, MAX_COUNT)
clocks = st.dictionaries(agents, counts, max_size=5).map(VectorClock)


@unhurried
@given(clocks, clocks, clocks)
def test_merge_is_commutative_associative_and_idempotent(
    one: VectorClock, two: VectorClock, three: VectorClock
) -> None:
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) == one
    assert one.merge(VectorClock()) == one


@unhurried
@given(clocks, clocks, clocks)
def test_le_is_a_partial_order_of_what_is_known(one: VectorClock, two: VectorClock, three: VectorClock) -> None:
    assert one.le(one)
    if one.le(two) and two.le(three):
        assert one.le(three)
    if one.le(two) and two.le(one):
        assert {agent: count for agent, count in one.root.items() if count} == {
            agent: count for agent, count in two.root.items() if count
        }


@unhurried
@given(clocks, clocks, clocks)
def test_merge_is_the_least_clock_after_both(one: VectorClock, two: VectorClock, bound: VectorClock) -> None:
    merged = one.merge(two)
    assert one.le(merged)
    assert two.le(merged)
    if one.le(bound) and two.le(bound):
        assert merged.le(bound)


@unhurried
@given(clocks, clocks)
def test_concurrent_is_symmetric_and_excludes_order(one: VectorClock, two: VectorClock) -> None:
    assert one.concurrent(two) == two.concurrent(one)
    assert not one.concurrent(one)
    assert one.concurrent(two) + one.le(two) + two.le(one) >= 1
    assert one.concurrent(two) != (one.le(two) or two.le(one))


@unhurried
@given(clocks, agents)
def test_tick_moves_one_agent_by_one(clock: VectorClock, agent: str) -> None:
    if clock.get(agent) == MAX_COUNT:
        with pytest.raises(InvalidRequest):
            clock.tick(agent)
        return
    ticked = clock.tick(agent)
    assert ticked.get(agent) == clock.get(agent) + 1
    assert clock.le(ticked)
    assert not ticked.le(clock)
    assert {other: ticked.get(other) for other in clock.root if other != agent} == {
        other: count for other, count in clock.root.items() if other != agent
    }


@unhurried
@given(clocks, clocks)
def test_clocks_are_compared_hashed_and_digested_by_value(one: VectorClock, two: VectorClock) -> None:
    reordered = VectorClock(dict(reversed(one.root.items())))
    assert reordered == one
    assert hash(reordered) == hash(one)
    assert reordered.digest() == one.digest()
    assert (one == two) == (one.digest() == two.digest())


@unhurried
@given(clocks)
def test_a_clock_goes_through_json_and_keeps_its_zeros(clock: VectorClock) -> None:
    again = VectorClock.model_validate_json(clock.model_dump_json())
    assert again == clock
    assert again.root == clock.root


def test_a_clock_is_captured_by_value() -> None:
    given_counts = {"a": 1}
    clock = VectorClock(given_counts)
    given_counts["a"] = 2
    assert clock.get("a") == 1
    assert clock.get("nobody") == 0


@pytest.mark.parametrize(
    "bad", [{"a": -1}, {"a": True}, {"a": 1.0}, {"a": "1"}, {"a": MAX_COUNT + 1}, {1: 1}, {"\ud800": 1}]
)
def test_what_is_no_clock_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        VectorClock(bad)
