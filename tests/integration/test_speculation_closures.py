"""The shapes of closures: diamonds, ladders, long chains, limits on their size, and why there are no cycles."""

from __future__ import annotations

import pytest

from effectfence_pg import (
    ClosurePending,
    ClosureTooLarge,
    EffectCert,
    FenceConfig,
    FenceError,
    LeaseLost,
    ReadSetUnsettled,
)
from tests.support.rows import all_of
from tests.support.speculation import branch_state, broken, chain_of, falls, ran, states
from tests.support.world import World

LONG = 300


def small(world: World, limit: int) -> World:
    """The same namespace through a fence that walks no more members than that."""
    return World(world.engine, world.namespace, FenceConfig(max_closure_members=limit))


def branch_with_a_tail(world: World, length: int) -> None:
    """A member of `plan`, and `length` effects without a branch, each of which observed the one before."""
    ran(world, "tail:0", branch="plan")
    for number in range(1, length + 1):
        ran(world, f"tail:{number}", observes=[f"tail:{number - 1}"])


def test_a_commit_over_too_many_members_keeps_the_result_and_goes_on_when_they_are_fewer(world: World) -> None:
    branch_with_a_tail(world, 3)
    fence = small(world, 3).fence
    prepared = world.admit("mine", observes=["tail:3"])
    with pytest.raises(ClosureTooLarge) as refused:
        fence.commit(prepared, "it did run")
    assert (refused.value.intent, refused.value.limit) == ("mine", 3)
    row = world.effect("mine")
    assert (row["state"], row["result"], row["commit_asked"]) == ("executed", '"it did run"', True)
    assert states(world, "tail:0", "tail:3") == {"tail:0": "executed", "tail:3": "executed"}
    before = world.rows()
    with pytest.raises(ClosureTooLarge):
        fence.commit(prepared, "it did run")
    assert world.rows() == before
    world.fence.promote(branch="plan")
    assert world.fence.promote(intent="tail:2").effects == 2
    with pytest.raises(ClosurePending):
        fence.commit(prepared, "it did run")
    world.fence.promote(intent="tail:3")
    assert isinstance(fence.commit(prepared, "it did run"), EffectCert)


def test_a_promotion_of_too_many_members_moves_nothing(world: World) -> None:
    branch_with_a_tail(world, 1)
    for number in range(2, 5):
        ran(world, f"tail:{number}", branch="other plan", observes=[f"tail:{number - 1}"])
    world.fence.promote(branch="plan")
    fence = small(world, 4).fence
    before = world.rows()
    for act in (
        lambda: fence.promote(branch="other plan"),
        lambda: fence.reconcile_branch("other plan"),
        lambda: fence.promote(intent="tail:4"),
    ):
        with pytest.raises(ClosureTooLarge) as refused:
            act()
        assert refused.value.limit == 4
        assert world.rows() == before
    assert branch_state(world, "other plan")[0] == "open"
    # Four that wait, and the committed one at which the walk stops.
    assert small(world, 5).fence.promote(branch="other plan").effects == 4


def test_a_cascade_has_no_limit(world: World) -> None:
    branch_with_a_tail(world, 5)
    assert len(small(world, 1).fence.abort_branch("plan", "contradicted").effects) == 6


def test_the_past_of_a_committed_effect_is_not_walked(world: World) -> None:
    branch_with_a_tail(world, 5)
    world.fence.promote(branch="plan")
    world.fence.promote(intent="tail:5")
    fence = small(world, 1).fence
    assert isinstance(fence.commit(world.admit("mine", observes=["tail:5"]), "done"), EffectCert)


def ladder(world: World, rungs: int) -> list[str]:
    """Two effects on each rung, each of which observed both of the rung before: 2^rungs paths."""
    ran(world, "rung:0:l", branch="plan")
    names = ["rung:0:l"]
    below = ["rung:0:l"]
    for rung in range(1, rungs + 1):
        rung_names = [f"rung:{rung}:{side}" for side in "lr"]
        for name in rung_names:
            ran(world, name, observes=below)
        below, names = rung_names, names + rung_names
    return names


def test_a_ladder_falls_once_whatever_the_number_of_paths(world: World) -> None:
    names = ladder(world, 7)
    answer = world.fence.abort_branch("plan", "contradicted")
    assert [effect.intent for effect in answer.effects][-1] == "rung:0:l"
    assert sorted(effect.intent for effect in answer.effects) == sorted(names)
    assert {origin for _, origin, _ in falls(world).values()} == {None, "rung:0:l"}
    assert all(world.seq(f"of:{name}") == 2 for name in names)


def test_a_ladder_commits_as_a_whole(world: World) -> None:
    names = ladder(world, 7)
    world.fence.promote(branch="plan")
    assert world.fence.promote(intent=names[-1]).effects == 13
    assert world.state(names[-2]) == "executed", "nobody rests on the other one at the top"
    assert broken(world.engine, world.namespace) == []


def test_a_long_chain_falls_from_its_first_link_to_its_last(world: World) -> None:
    chain_of(world, LONG)
    world.admit("running", observes=[f"link:{LONG - 1}"])
    answer = world.fence.abort_intent("link:0", attempt=1, reason="contradicted", actor="olga")
    order = [effect.intent for effect in answer.effects]
    assert len(order) == LONG + 1
    assert (order[0], order[-1]) == ("running", "link:0")
    fallen = falls(world)
    assert fallen.pop("link:0") == ("intent_aborted", None, "olga")
    assert set(fallen.values()) == {("cascade", "link:0", "olga")}
    assert len(fallen) == LONG
    assert broken(world.engine, world.namespace) == []


def test_a_long_chain_falls_from_the_middle_to_its_last_link_only(world: World) -> None:
    chain_of(world, LONG)
    assert len(world.fence.abort_intent("link:200", attempt=1, reason="contradicted").effects) == LONG - 200
    assert states(world, "link:199", "link:200") == {"link:199": "executed", "link:200": "aborted"}
    assert world.fence.promote(intent="link:199").effects == 200
    with pytest.raises(FenceError):
        world.fence.promote(intent=f"link:{LONG - 1}")


def test_a_long_chain_commits_in_one_transaction(world: World) -> None:
    chain_of(world, LONG)
    prepared = world.admit("top", observes=[f"link:{LONG - 1}"])
    assert isinstance(world.fence.commit(prepared, "done", closure="promote"), EffectCert)
    found = all_of(
        world.engine,
        "SELECT count(*), count(DISTINCT c.xmin::text), bool_and(a.columns_hold AND a.hash_holds AND a.clock_holds) "
        "FROM effectfence.certificates c JOIN effectfence.certificate_audit a USING (namespace, hash) "
        "WHERE namespace = :n AND a.intent LIKE 'link:%'",
        n=world.namespace,
    )
    assert found == [(LONG, 1, True)]


def test_a_cycle_cannot_be_made(world: World) -> None:
    """What can be observed observes nothing more, and what observes cannot be observed."""
    left, right = world.admit("left"), world.admit("right")
    attempts = (
        lambda: world.fence.observe_late(left, (), ("right",)),
        lambda: world.fence.observe_late(left, (), ("left",)),
        lambda: world.fence.prepare(world.request("third", observes=["left"])),
        lambda: world.fence.prepare(world.request("third", observes=["third"])),
    )
    for attempt in attempts:
        before = world.rows()
        with pytest.raises(FenceError) as refused:
            attempt()
        assert refused.value.code in {"read_set_unsettled", "unknown_intent"}
        assert world.rows() == before
    ran(world, "base", branch="plan")
    world.fence.observe_late(right, (), ("base",))
    world.fence.commit(right, "done", closure="hold")
    world.fence.observe_late(left, (), ("right",))
    before = world.rows()
    with pytest.raises(LeaseLost):
        world.fence.observe_late(right, (), ("left",))
    assert world.rows() == before


def test_an_unfinished_retry_of_what_was_observed_cannot_be_observed(world: World) -> None:
    """An edge is to an attempt: the next attempt of the same intent has no result yet."""
    ran(world, "base", branch="plan")
    prepared = world.admit("mine")
    world.fence.abort_branch("plan", "contradicted")
    world.fence.reconcile("base", attempt=1, outcome="compensated", evidence=1, operator="olga")
    world.admit("base")
    with pytest.raises(ReadSetUnsettled) as refused:
        world.fence.observe_late(prepared, (), ("base",))
    assert [(b.intent, b.attempt, b.state) for e in refused.value.entries for b in e.blockers] == [
        ("base", 2, "in_flight")
    ]
