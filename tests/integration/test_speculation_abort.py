"""abort_branch and abort_intent: what ran and is not committed is rolled back without anybody's ticket, dependents first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effectfence_pg import (
    Aborted,
    AttemptMismatch,
    BranchDecided,
    ClosureAborted,
    CommitConflict,
    Compensation,
    FenceError,
    InvalidRequest,
    NotReconcilable,
    RolledBack,
    UnknownBranch,
    UnknownIntent,
)
from tests.support.rows import all_of
from tests.support.speculation import UNDO, branch_state, broken, decided, falls, ran, states
from tests.support.world import World


def test_aborting_a_branch_ends_its_effects_and_all_that_rests_on_them_in_one_transaction(world: World) -> None:
    ran(world, "first", branch="plan", agent="agent-a")
    ran(world, "outside", observes=["first"], agent="agent-b")
    ran(world, "elsewhere", branch="other plan", observes=["outside"], agent="agent-c")
    world.admit("running", observes=["elsewhere"], agent="agent-d")
    world.fence.abort(world.admit("unknown", branch="plan"), "connection reset")
    ran(world, "unrelated", branch="third plan")
    world.fence.abort_branch("plan", "contradicted", actor="olga")
    assert falls(world) == {
        "first": ("branch_aborted", None, "olga"),
        "unknown": ("branch_aborted", None, "olga"),
        "outside": ("cascade", "first", "olga"),
        "elsewhere": ("cascade", "first", "olga"),
        "running": ("cascade", "first", "olga"),
    }
    assert world.state("unrelated") == "executed"
    assert branch_state(world, "plan") == ("aborted", "olga", "contradicted")
    assert branch_state(world, "other plan")[0] == "open"
    assert world.effect("first")["reason"] == "contradicted"
    wrote = "SELECT DISTINCT xmin::text FROM effectfence.transitions WHERE namespace = :n AND to_state = 'aborted'"
    assert len(all_of(world.engine, wrote, n=world.namespace)) == 1
    assert broken(world.engine, world.namespace) == []


def test_every_exit_takes_one_number_of_its_own_domain(world: World) -> None:
    ran(world, "base", branch="plan", domain="d:base")
    ran(world, "base-2", branch="plan", domain="d:base")
    for name in ("left", "right"):
        ran(world, name, domain="d:shared", observes=["base", "base-2"])
    world.admit("top", domain="d:top", observes=["left", "right", "base"])
    before = {domain: world.seq(domain) for domain in ("d:base", "d:shared", "d:top")}
    world.fence.abort_branch("plan", "contradicted")
    assert {domain: world.seq(domain) - seq for domain, seq in before.items()} == {
        "d:base": 2,
        "d:shared": 2,
        "d:top": 1,
    }


def test_the_answer_lists_dependents_first_with_what_undoes_them(world: World) -> None:
    """In an order in which they can be undone: nothing before what rested on it, also across the branch's border."""
    ran(world, "first", branch="plan", compensation=UNDO)
    ran(world, "outside", observes=["first"], compensation={"tool": "unpublish"})
    ran(world, "last", branch="plan", observes=["outside"])
    world.admit("running", observes=["last"], compensation=UNDO)
    answer = world.fence.abort_branch("plan", "contradicted")
    assert isinstance(answer, Aborted)
    assert [(e.intent, e.attempt, e.state, e.due) for e in answer.effects] == [
        ("running", 1, "in_flight", False),
        ("last", 1, "executed", True),
        ("outside", 1, "executed", True),
        ("first", 1, "executed", True),
    ]
    plans = [effect.compensation for effect in answer.effects]
    assert plans == [Compensation(**UNDO), None, Compensation(tool="unpublish"), Compensation(**UNDO)]


def test_what_an_abort_by_the_holder_answers_is_in_the_same_order(world: World) -> None:
    base = ran(world, "base", branch="plan")
    ran(world, "middle", observes=["base"])
    ran(world, "top", observes=["middle"])
    answer = world.fence.abort(base, "wrong")
    assert [effect.intent for effect in answer.effects] == ["top", "middle", "base"]
    assert [blocker.intent for blocker in answer.dependents] == ["top", "middle"]


def test_only_what_has_a_result_is_due_to_be_undone(world: World) -> None:
    """A result reported late, of a failed effect whose read set had moved, included."""
    ran(world, "base", branch="plan")
    stale = world.admit("stale", observes=["base"], read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(FenceError):
        world.fence.commit(stale, "it did run")
    world.fence.abort(world.admit("unknown", observes=["base"]), "connection reset")
    answer = world.fence.abort_branch("plan", "contradicted")
    assert {effect.intent: (effect.state, effect.due) for effect in answer.effects} == {
        "base": ("executed", True),
        "stale": ("failed", True),
        "unknown": ("failed", False),
    }


def test_aborting_a_branch_again_changes_nothing_and_answers_the_same(world: World) -> None:
    """The first answer may have been lost, and with it what has to be undone."""
    ran(world, "member", branch="plan", compensation=UNDO)
    ran(world, "outside", observes=["member"])
    world.admit("running", branch="plan", observes=["outside"])
    answer = world.fence.abort_branch("plan", "contradicted")
    assert [effect.intent for effect in answer.effects] == ["running", "outside", "member"]
    before = world.rows()
    assert world.fence.abort_branch("plan", "contradicted once more", actor="otto") == answer
    assert world.rows() == before


def test_a_committed_branch_cannot_be_aborted(world: World) -> None:
    ran(world, "member", branch="plan")
    world.fence.promote(branch="plan")
    before = world.rows()
    with pytest.raises(BranchDecided) as refused:
        world.fence.abort_branch("plan", "too late")
    assert (refused.value.branch, refused.value.state) == ("plan", "committed")
    assert world.rows() == before


def test_a_committed_effect_is_never_reached(world: World) -> None:
    """Not its own branch's abort, not a cascade, not its intent's."""
    base = ran(world, "base", branch="base plan")
    over = world.admit("over", branch="plan", observes=["base"])
    world.fence.abort(base, "rolled back")
    with pytest.raises(ClosureAborted):
        world.fence.commit(over, "it did run")
    world.fence.reconcile("over", attempt=1, outcome="happened", evidence=1, operator="o", over=True)
    ran(world, "sibling", branch="plan")
    world.admit("reader", observes=["over"])
    answer = world.fence.abort_branch("plan", "contradicted")
    assert [effect.intent for effect in answer.effects] == ["sibling"]
    assert states(world, "over", "reader") == {"over": "committed", "reader": "in_flight"}
    before = world.rows()
    with pytest.raises(CommitConflict) as refused:
        world.fence.abort_intent("over", attempt=1, reason="please")
    assert refused.value.certificate == world.status("over").certificate
    assert world.rows() == before


@pytest.mark.parametrize("state", ["in_flight", "expired", "executed", "failed"])
def test_an_intent_is_rolled_back_without_its_ticket(world: World, state: str) -> None:
    """Its agent may have died."""
    prepared = decided(world, "mine") if state == "executed" else world.put(state, "mine")
    lease = world.effect("mine")["lease_expires_at"]
    answer = world.fence.abort_intent("mine", attempt=1, reason="contradicted", actor="olga")
    before = "in_flight" if state == "expired" else state
    assert isinstance(answer, RolledBack)
    assert (answer.intent, answer.attempt, answer.state) == ("mine", 1, "aborted")
    assert [(e.intent, e.state, e.due) for e in answer.effects] == [("mine", before, state == "executed")]
    assert world.history("mine")[-1] == (1, before, "aborted", "intent_aborted", "olga")
    assert (world.effect("mine")["reason"], world.effect("mine")["lease_expires_at"]) == ("contradicted", lease)
    rows = world.rows()
    assert world.fence.abort_intent("mine", attempt=1, reason="once more") == answer
    assert world.rows() == rows
    with pytest.raises(ClosureAborted):
        world.fence.commit(prepared, "done")


def test_a_members_end_leaves_its_branch_open_and_decides_its_next_decision(world: World) -> None:
    ran(world, "bad", branch="plan")
    ran(world, "good", branch="plan")
    world.fence.abort_intent("bad", attempt=1, reason="contradicted")
    assert states(world, "bad", "good") == {"bad": "aborted", "good": "executed"}
    assert branch_state(world, "plan")[0] == "open"
    assert isinstance(world.fence.reconcile_branch("plan"), Aborted)
    assert world.state("good") == "aborted"


REFUSED: dict[str, tuple[type[FenceError], Callable[[World], object]]] = {
    "unknown intent": (UnknownIntent, lambda w: w.fence.abort_intent("nobody", attempt=1, reason="r")),
    "unknown branch": (UnknownBranch, lambda w: w.fence.abort_branch("nothing", "r")),
    "later attempt": (AttemptMismatch, lambda w: w.fence.abort_intent("running", attempt=2, reason="r")),
    "earlier attempt": (AttemptMismatch, lambda w: w.fence.abort_intent("superseded", attempt=1, reason="r")),
    "released": (NotReconcilable, lambda w: w.fence.abort_intent("released", attempt=1, reason="r")),
    "no attempt": (InvalidRequest, lambda w: w.fence.abort_intent("running", attempt=0, reason="r")),
    "no reason": (InvalidRequest, lambda w: w.fence.abort_intent("running", attempt=1, reason="")),
    "no actor": (InvalidRequest, lambda w: w.fence.abort_branch("nothing", "r", actor="")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_there_has_to_be_something_to_roll_back(world: World, case: str) -> None:
    world.admit("running")
    world.put("superseded", "superseded")
    world.put("released", "released")
    kind, act = REFUSED[case]
    before = world.rows()
    with pytest.raises(kind):
        act(world)
    assert world.rows() == before
