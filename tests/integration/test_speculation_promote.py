"""promote: every effect of a closure, or of a branch and its closure, commits in one transaction, or none does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effectfence_pg import (
    ClosureAborted,
    ClosurePending,
    Committed,
    FenceError,
    InvalidRequest,
    UnknownBranch,
    UnknownIntent,
)
from tests.support.rows import all_of
from tests.support.speculation import branch_state, broken, decided, ran, states
from tests.support.world import World


def transactions_of_certificates(world: World) -> list[str]:
    return all_of(
        world.engine,
        "SELECT DISTINCT xmin::text FROM effectfence.certificates WHERE namespace = :n",
        n=world.namespace,
    )


def refused(world: World, kind: type[FenceError], call: Callable[[], object]) -> list[tuple[str, str]]:
    """The blockers of a refusal that changed nothing."""
    before = world.rows()
    with pytest.raises(kind) as error:
        call()
    assert world.rows() == before
    return [(blocker.intent, blocker.state) for blocker in error.value.blockers]  # type: ignore[attr-defined]


def test_a_branch_and_what_it_rests_on_commit_in_one_transaction(world: World) -> None:
    ran(world, "first", branch="plan")
    ran(world, "between", observes=["first"])
    ran(world, "last", branch="plan", observes=["between"])
    assert world.fence.promote(branch="plan", actor="olga") == Committed(branch="plan", effects=3)
    assert set(states(world, "first", "between", "last").values()) == {"committed"}
    assert len(transactions_of_certificates(world)) == 1
    assert [world.history(name)[-1][2:] for name in ("first", "between", "last")] == [
        ("committed", "promoted", "olga")
    ] * 3
    assert branch_state(world, "plan") == ("committed", "olga", None)
    audit = (
        "SELECT bool_and(hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds), count(*) "
        "FROM effectfence.certificate_audit WHERE namespace = :n"
    )
    assert all_of(world.engine, audit, n=world.namespace) == [(True, 3)]


def test_an_intent_is_promoted_with_its_closure_and_nothing_else(world: World) -> None:
    decided(world, "base")
    ran(world, "left", observes=["base"])
    ran(world, "right", observes=["base"])
    ran(world, "top", observes=["left"])
    assert world.fence.promote(intent="left") == Committed(effects=2)
    assert states(world, "base", "left", "right", "top") == {
        "base": "committed",
        "left": "committed",
        "right": "executed",
        "top": "executed",
    }


def test_while_a_member_of_the_branch_is_in_flight_nothing_moves(world: World) -> None:
    ran(world, "done", branch="plan")
    running = world.admit("running", branch="plan")
    assert refused(world, ClosurePending, lambda: world.fence.promote(branch="plan")) == [("running", "in_flight")]
    world.fence.commit(running, "done")
    assert world.fence.promote(branch="plan").effects == 2


def test_an_intent_in_flight_cannot_be_promoted(world: World) -> None:
    world.admit("running")
    assert refused(world, ClosurePending, lambda: world.fence.promote(intent="running")) == [("running", "in_flight")]


def test_an_intent_that_runs_again_is_refused_by_its_current_attempt(world: World) -> None:
    world.put("released", "running")
    assert world.admit("running").attempt == 2
    with pytest.raises(ClosurePending) as error:
        world.fence.promote(intent="running")
    assert (error.value.intent, error.value.attempt) == ("running", 2)


@pytest.mark.parametrize("dead", ["failed", "aborted"])
def test_a_dead_member_aborts_the_whole_branch_and_its_dependents(world: World, dead: str) -> None:
    ran(world, "good", branch="plan")
    bad = ran(world, "bad", branch="plan") if dead == "aborted" else world.admit("bad", branch="plan")
    ran(world, "outside", observes=["good"])
    running = world.admit("running", branch="plan")
    world.fence.abort(bad, "went wrong")
    with pytest.raises(ClosureAborted) as error:
        world.fence.promote(branch="plan", actor="olga")
    assert [(b.intent, b.state) for b in error.value.blockers] == [("bad", dead)]
    fell = {(e.intent, e.state, e.due) for e in error.value.effects} - {("bad", "failed", False)}
    assert fell == {("running", "in_flight", False), ("outside", "executed", True), ("good", "executed", True)}
    assert error.value.facts()["effects"][0]["attempt"] == 1
    assert set(states(world, "good", "bad", "outside", "running").values()) == {"aborted"}
    assert world.effect("running")["lease_expires_at"] == running.lease_expires_at
    assert world.history("good")[-1][2:] == ("aborted", "closure_dead", "olga")
    assert transactions_of_certificates(world) == []
    assert branch_state(world, "plan")[:2] == ("aborted", "olga")
    assert broken(world.engine, world.namespace) == []


def test_what_a_dead_set_rested_on_is_not_rolled_back_with_it(world: World) -> None:
    """It never observed what died: the effect of another open plan, and one without a plan."""
    ran(world, "theirs", branch="their plan")
    decided(world, "free")
    ran(world, "good", branch="plan", observes=["theirs", "free"])
    world.fence.abort(world.admit("bad", branch="plan"), "went wrong")
    world.fence.abort(world.admit("loner", observes=["theirs", "free"]), "went wrong")
    with pytest.raises(ClosureAborted):
        world.fence.promote(branch="plan")
    assert refused(world, ClosureAborted, lambda: world.fence.promote(intent="loner")) == [("loner", "failed")]
    assert states(world, "good", "theirs", "free") == {"good": "aborted", "theirs": "executed", "free": "executed"}
    assert world.fence.promote(branch="their plan").effects == 1
    assert world.fence.promote(intent="free").effects == 1


def test_an_effect_with_a_branch_is_promoted_by_its_branch_only(world: World) -> None:
    ran(world, "member", branch="plan")
    assert refused(world, ClosurePending, lambda: world.fence.promote(intent="member")) == [("member", "executed")]
    assert world.fence.promote(branch="plan").effects == 1


def test_another_open_branch_is_not_reached_into(world: World) -> None:
    ran(world, "theirs", branch="their plan")
    ran(world, "free", observes=["theirs"])
    ran(world, "mine", branch="plan", observes=["free"])
    assert refused(world, ClosurePending, lambda: world.fence.promote(intent="free")) == [("theirs", "executed")]
    assert refused(world, ClosurePending, lambda: world.fence.promote(branch="plan")) == [("theirs", "executed")]
    assert world.fence.promote(branch="their plan").effects == 1
    assert world.fence.promote(branch="plan").effects == 2


def test_what_was_decided_before_is_said_again_and_nothing_changes(world: World) -> None:
    ran(world, "kept", branch="kept")
    ran(world, "dropped", branch="dropped")
    world.fence.promote(branch="kept")
    world.fence.abort_branch("dropped", "contradicted")
    before = world.rows()
    assert world.fence.promote(branch="kept") == Committed(branch="kept", effects=0)
    assert world.fence.promote(intent="kept") == Committed(effects=0)
    with pytest.raises(ClosureAborted):
        world.fence.promote(branch="dropped")
    with pytest.raises(ClosureAborted):
        world.fence.promote(intent="dropped")
    assert world.rows() == before


def test_what_nobody_knows_cannot_be_promoted(world: World) -> None:
    with pytest.raises(UnknownBranch):
        world.fence.promote(branch="nothing")
    with pytest.raises(UnknownIntent):
        world.fence.promote(intent="nothing")
    for ask in ({}, {"intent": "a", "branch": "b"}, {"intent": ""}, {"branch": "b", "actor": ""}):
        with pytest.raises(InvalidRequest):
            world.fence.promote(**ask)
    assert all(found == [] for found in world.rows().values())


def test_a_branch_that_nothing_is_left_of_commits_nothing(world: World) -> None:
    world.fence.abort(world.admit("never sent", branch="plan"), "never sent", effect="none")
    assert world.fence.promote(branch="plan") == Committed(branch="plan", effects=0)
    assert world.state("never sent") == "released"
    assert branch_state(world, "plan")[0] == "committed"


def test_released_and_superseded_attempts_are_members_of_nothing(world: World) -> None:
    """Their intents run again in another plan, which this one does not wait for."""
    world.put("released", "retried", branch="plan")
    world.admit("retried", branch="other plan")
    world.admit("slow", branch="plan", on_lease_expiry="takeover")
    world.expire("slow")
    world.admit("slow", branch="other plan")
    ran(world, "done", branch="plan")
    assert world.fence.promote(branch="plan") == Committed(branch="plan", effects=1)
    assert (world.state("retried", 1), world.state("retried", 2)) == ("released", "in_flight")
    assert (world.state("slow", 1), world.state("slow", 2)) == ("superseded", "in_flight")
    assert branch_state(world, "other plan")[0] == "open"


def test_a_released_intent_has_nothing_to_promote(world: World) -> None:
    world.put("released", "never sent")
    assert refused(world, ClosureAborted, lambda: world.fence.promote(intent="never sent")) == [
        ("never sent", "released")
    ]


def test_the_read_set_of_what_ran_is_not_checked_again(world: World) -> None:
    ran(world, "member", branch="plan", read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    assert world.fence.promote(branch="plan").effects == 1


def test_a_member_that_was_certified_over_a_rollback_stands_in_nobodys_way(world: World) -> None:
    """It is committed: whatever became of its branch, what rests on it may stand."""
    for branch in ("dropped", "open"):
        base = ran(world, f"base:{branch}", branch=f"base:{branch}")
        over = world.admit(f"over:{branch}", branch=branch, observes=[f"base:{branch}"])
        world.fence.abort(base, "rolled back")
        with pytest.raises(ClosureAborted):
            world.fence.commit(over, "it did run")
        world.fence.reconcile(f"over:{branch}", attempt=1, outcome="happened", evidence=1, operator="o", over=True)
    world.fence.abort_branch("dropped", "contradicted")
    for branch in ("dropped", "open"):
        ran(world, f"plan:{branch}", branch=f"plan:{branch}", observes=[f"over:{branch}"])
        assert world.fence.promote(branch=f"plan:{branch}").effects == 1
