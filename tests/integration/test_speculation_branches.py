"""Branches: a label for the speculative effects of one plan, decided once; the answer about one is total."""

from __future__ import annotations

from typing import Any

import pytest

from effectfence_pg import Aborted, BranchDecided, Committed, Fence, FenceError, Pending, Replay, UnknownBranch
from tests.support.rows import one
from tests.support.speculation import branch_state, ran
from tests.support.world import World


@pytest.mark.parametrize("decision", ["committed", "aborted"])
def test_a_decided_branch_takes_no_more_effects(world: World, decision: str) -> None:
    ran(world, "member", branch="plan")
    world.put("released", "retried", branch="plan")
    if decision == "committed":
        world.fence.promote(branch="plan")
    else:
        world.fence.abort_branch("plan", "contradicted")
    before = world.rows()
    for intent in ("new", "retried"):
        with pytest.raises(BranchDecided) as refused:
            world.fence.prepare(world.request(intent, branch="plan"))
        assert (refused.value.branch, refused.value.state) == ("plan", decision)
    assert world.rows() == before
    assert world.admit("retried", branch="another plan").attempt == 2


def test_what_is_committed_is_replayed_although_its_branch_is_decided(world: World) -> None:
    ran(world, "member", branch="plan")
    world.fence.promote(branch="plan")
    assert isinstance(world.fence.prepare(world.request("member", branch="plan")), Replay)


def test_a_takeover_into_a_decided_branch_is_refused_and_the_old_attempt_stays(world: World) -> None:
    ran(world, "member", branch="plan")
    world.fence.promote(branch="plan")
    world.put("expired", "slow", on_lease_expiry="takeover")
    before = world.rows()
    with pytest.raises(BranchDecided):
        world.fence.prepare(world.request("slow", branch="plan"))
    assert world.rows() == before


def test_a_branch_is_decided_once(world: World) -> None:
    ran(world, "kept", branch="kept")
    ran(world, "dropped", branch="dropped")
    world.fence.promote(branch="kept", actor="olga")
    world.fence.abort_branch("dropped", "contradicted", actor="olga")
    before = world.rows()
    with pytest.raises(BranchDecided):
        world.fence.abort_branch("kept", "too late", actor="otto")
    assert isinstance(world.fence.reconcile_branch("dropped", actor="otto"), Aborted)
    assert isinstance(world.fence.reconcile_branch("kept", actor="otto"), Committed)
    assert world.rows() == before
    assert branch_state(world, "kept") == ("committed", "olga", None)
    assert branch_state(world, "dropped") == ("aborted", "olga", "contradicted")


def test_a_branch_of_the_same_name_in_another_namespace_is_another_branch(world: World) -> None:
    other = World(world.engine, world.namespace + "-b")
    for one_world in (world, other):
        ran(one_world, "member", branch="plan")
    world.fence.abort_branch("plan", "contradicted")
    assert (world.state("member"), other.state("member")) == ("aborted", "executed")
    assert other.admit("more", branch="plan").branch == "plan"
    other.fence.abort_intent("more", attempt=1, reason="not needed")
    with pytest.raises(UnknownBranch):
        Fence(world.engine, namespace=world.namespace + "-c").reconcile_branch("plan")


def test_a_branch_is_opened_by_its_first_admission_and_by_nothing_less(world: World) -> None:
    before = world.rows()
    with pytest.raises(FenceError):
        world.fence.prepare(world.request(branch="plan", observes=["nobody"]))
    with pytest.raises(UnknownBranch):
        world.fence.reconcile_branch("plan")
    with pytest.raises(UnknownBranch):
        world.fence.abort_branch("plan", "nothing there")
    assert world.rows() == before
    world.admit(branch="plan")
    assert branch_state(world, "plan") == ("open", None, None)


CONTENTS: dict[str, tuple[type[Any], str]] = {
    "in_flight": (Pending, "open"),
    "expired": (Pending, "open"),
    "executed": (Committed, "committed"),
    "failed": (Aborted, "aborted"),
    "aborted": (Aborted, "aborted"),
    "aborted_in_flight": (Aborted, "aborted"),
    "released": (Committed, "committed"),
    "superseded": (Pending, "open"),
}
"""What is answered about a branch with one effect in that state; the superseded one's successor is in flight."""


@pytest.mark.parametrize("state", CONTENTS)
def test_the_answer_about_a_branch_is_total(world: World, state: str) -> None:
    kind, becomes = CONTENTS[state]
    world.put(state, "member", branch="plan")
    before = world.rows()
    answer = world.fence.reconcile_branch("plan")
    assert type(answer) is kind
    assert answer.branch == "plan"
    assert branch_state(world, "plan")[0] == becomes
    if becomes == "open":
        assert [(b.intent, b.state) for b in answer.blockers] == [("member", "in_flight")]
        assert world.rows() == before
    elif becomes == "aborted":
        assert "member" in [b.intent for b in answer.blockers]
    assert type(world.fence.reconcile_branch("plan")) is kind


def test_of_a_branch_of_which_a_lease_ran_out_the_answer_is_given_once_it_is_fenced(world: World) -> None:
    world.put("expired", "member", branch="plan")
    assert isinstance(world.fence.reconcile_branch("plan"), Pending)
    world.fence.sweep()
    assert isinstance(world.fence.reconcile_branch("plan"), Aborted)


def test_decisions_count_versions_of_the_branch(world: World) -> None:
    ran(world, "member", branch="plan")
    version = "SELECT version FROM effectfence.branches WHERE namespace = :n"
    assert one(world.engine, version, n=world.namespace) == 1
    world.fence.promote(branch="plan")
    assert one(world.engine, version, n=world.namespace) == 2
