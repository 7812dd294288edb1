"""What becomes of a compensation that does not commit: an unknown outcome like any other, and its target stays fenced."""

from __future__ import annotations

import pytest

from effectfence_pg import (
    ClosurePending,
    EffectCert,
    Fresh,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    NotReconcilable,
    PreparedEffect,
    Settled,
)
from tests.support.rows import all_of
from tests.support.speculation import UNDO, broken, ran
from tests.support.world import World


@pytest.fixture
def undoing(world: World) -> PreparedEffect:
    """The ticket of a compensation of `mine`, whose branch was rolled back after it ran."""
    ran(world, "mine", branch="plan", compensation=UNDO)
    world.fence.abort_branch("plan", "contradicted")
    return again(world)


def again(world: World) -> PreparedEffect:
    verdict = world.fence.prepare_compensation("mine", attempt=1, agent="undoer")
    assert isinstance(verdict, Fresh)
    return verdict.prepared


def judge(world: World, undoing: PreparedEffect, outcome: str, attempt: int = 1, **more: object) -> str:
    facts = {"evidence": "asked the bank", "operator": "olga", **more}
    return world.fence.reconcile(undoing.intent, attempt=attempt, outcome=outcome, **facts).state


@pytest.mark.parametrize("end", ["failed", "expired"])
def test_an_unknown_outcome_is_fenced_and_visible_in_one_query(world: World, undoing: PreparedEffect, end: str) -> None:
    if end == "failed":
        world.fence.abort(undoing, "connection reset")
    else:
        world.expire(undoing.intent)
        assert world.fence.settle() == Settled(fenced=1)
    assert world.state("mine") == "aborted"
    unresolved = all_of(
        world.engine,
        "SELECT intent, state, tool FROM effectfence.unresolved WHERE namespace = :n ORDER BY admitted_at",
        n=world.namespace,
    )
    assert unresolved == [("mine", "aborted", "charge"), (undoing.intent, "failed", "refund")]
    with pytest.raises(IntentFailed):
        again(world)
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request("mine", branch="another plan"))


def test_one_that_happened_after_all_releases_its_target(world: World, undoing: PreparedEffect) -> None:
    world.fence.abort(undoing, "connection reset")
    assert judge(world, undoing, "happened", result="refunded") == "committed"
    assert world.history("mine")[-1] == (1, "aborted", "released", "compensated", "olga")
    assert world.admit("mine", branch="another plan").attempt == 2


def test_one_that_completes_late_releases_its_target(world: World, undoing: PreparedEffect) -> None:
    world.expire(undoing.intent)
    world.fence.sweep()
    assert isinstance(world.fence.commit(undoing, "refunded"), EffectCert)
    assert world.state("mine") == "released"


def test_one_that_did_not_happen_can_be_tried_again(world: World, undoing: PreparedEffect) -> None:
    world.fence.abort(undoing, "connection reset")
    assert judge(world, undoing, "did_not_happen", basis="holder_dead") == "released"
    assert world.state("mine") == "aborted"
    second = again(world)
    assert (second.intent, second.attempt) == (undoing.intent, 2)
    assert isinstance(world.fence.commit(second, "refunded"), EffectCert)
    assert world.state("mine") == "released"


def test_one_that_was_never_sent_can_be_tried_again(world: World, undoing: PreparedEffect) -> None:
    assert world.fence.abort(undoing, "never sent", effect="none").state == "released"
    assert again(world).attempt == 2


@pytest.mark.parametrize("end", ["in_flight", "failed"])
def test_until_its_outcome_is_known_its_target_is_released_by_it_only(
    world: World, undoing: PreparedEffect, end: str
) -> None:
    """Run again in the meantime, the intent would be undone by what was meant for the attempt before."""
    if end == "failed":
        world.fence.abort(undoing, "connection reset")
    before = world.rows()
    for outcome, more in (("compensated", {}), ("did_not_happen", {"basis": "holder_dead"})):
        with pytest.raises(IntentInFlight if end == "in_flight" else NotReconcilable):
            world.fence.reconcile("mine", attempt=1, outcome=outcome, evidence=1, operator="olga", **more)
    assert world.rows() == before
    if end == "failed":
        assert judge(world, undoing, "did_not_happen", basis="holder_dead") == "released"
        assert world.fence.reconcile("mine", attempt=1, outcome="compensated", evidence=1, operator="olga").state == (
            "released"
        )


def test_its_targets_holder_cannot_release_it_either(world: World) -> None:
    slow = world.put("failed", "mine", compensation=UNDO)
    undoing = again(world)
    before = world.rows()
    assert world.fence.abort(slow, "never sent", effect="none").state == "failed"
    assert world.rows() == before
    world.fence.abort(undoing, "never sent", effect="none")
    assert world.fence.abort(slow, "never sent", effect="none").state == "released"


def test_while_it_runs_its_target_is_not_taken_over(world: World) -> None:
    world.put("expired", "mine", compensation=UNDO, on_lease_expiry="takeover")
    world.fence.sweep()
    undoing = again(world)
    before = world.rows()
    with pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request("mine"))
    assert (refused.value.attempt, refused.value.state) == (1, "failed")
    assert world.rows() == before
    world.fence.abort(undoing, "never sent", effect="none")
    assert world.admit("mine").attempt == 2
    assert world.state("mine", 1) == "superseded"


def test_while_it_is_released_its_target_is_open_again(world: World) -> None:
    """Nobody undoes it any more: its holder may still report, and an operator may find that it happened."""
    slow = world.put("expired", "mine", compensation=UNDO)
    world.fence.sweep()
    first = again(world)
    with pytest.raises(LeaseLost):
        world.fence.commit(slow, "it did run")
    world.fence.abort(first, "never sent", effect="none")
    status = world.fence.reconcile("mine", attempt=1, outcome="happened", evidence=1, operator="olga")
    assert status.state == "committed"
    assert status.certificate is not None
    assert status.certificate.result == "it did run"


def test_evidence_of_a_released_one_fences_it_and_not_its_committed_target(world: World) -> None:
    """The compensation did run after all, when its target was committed already: one for people, and nobody's row moves."""
    slow = world.put("expired", "mine", compensation=UNDO)
    world.fence.sweep()
    undoing = again(world)
    world.fence.abort(undoing, "never sent", effect="none")
    assert isinstance(world.fence.commit(slow, "it did run"), EffectCert)
    with pytest.raises(LeaseLost):
        world.fence.commit(undoing, "refunded")
    assert (world.state("mine"), world.state(undoing.intent)) == ("committed", "failed")
    assert judge(world, undoing, "happened") == "committed"
    assert world.state("mine") == "committed"


def test_the_holder_of_a_compensated_attempt_that_reports_late_fences_it_again(
    world: World, undoing: PreparedEffect
) -> None:
    world.fence.commit(undoing, "refunded")
    target = world.ticket("mine").model_copy(update={"branch": "plan"})
    assert world.state("mine") == "released"
    with pytest.raises(LeaseLost):
        world.fence.commit(target, "it ran again")
    assert world.state("mine") == "failed"
    # Its compensation ran once, and runs once: an operator says that it was undone in another way.
    status = world.fence.reconcile("mine", attempt=1, outcome="compensated", evidence="by hand", operator="olga")
    assert status.state == "released"


def test_one_can_be_rolled_back_itself_and_then_judged(world: World, undoing: PreparedEffect) -> None:
    world.fence.abort_intent(undoing.intent, attempt=1, reason="undoing was wrong")
    assert world.state("mine") == "aborted"
    with pytest.raises(IntentInFlight):
        judge(world, undoing, "did_not_happen", basis="holder_dead")
    world.expire(undoing.intent)
    assert judge(world, undoing, "did_not_happen", basis="holder_dead") == "released"
    assert again(world).attempt == 2


def test_one_that_observed_something_waits_for_it_and_then_releases_its_target(
    world: World, undoing: PreparedEffect
) -> None:
    """By promotion, by settling, or not at all when that falls."""
    ran(world, "base", branch="other plan")
    world.fence.observe_late(undoing, (), ("base",))
    with pytest.raises(ClosurePending):
        world.fence.commit(undoing, "refunded")
    assert (world.state(undoing.intent), world.state("mine")) == ("executed", "aborted")
    world.fence.promote(branch="other plan")
    assert world.state("mine") == "aborted"
    assert world.fence.settle() == Settled(committed=1)
    assert world.state("mine") == "released"


def test_one_that_falls_with_what_it_observed_leaves_its_target_fenced(world: World, undoing: PreparedEffect) -> None:
    ran(world, "base", branch="other plan")
    world.fence.observe_late(undoing, (), ("base",))
    world.fence.commit(undoing, "refunded", closure="hold")
    world.fence.abort_branch("other plan", "contradicted")
    assert (world.state(undoing.intent), world.state("mine")) == ("aborted", "aborted")
    # It did run: an operator stands for it, and its target is released.
    assert judge(world, undoing, "happened", over=True) == "committed"
    assert world.state("mine") == "released"
    assert broken(world.engine, world.namespace) == []


def test_a_failed_compensation_can_be_compensated(world: World, undoing: PreparedEffect) -> None:
    world.fence.abort(undoing, "connection reset")
    verdict = world.fence.prepare_compensation(undoing.intent, attempt=1, agent="undoer", tool="charge again")
    assert isinstance(verdict, Fresh)
    world.fence.commit(verdict.prepared, "charged")
    assert (world.state(undoing.intent), world.state("mine")) == ("released", "aborted")
    assert again(world).attempt == 2
