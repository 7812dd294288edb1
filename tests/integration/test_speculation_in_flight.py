"""An effect that is rolled back in flight: its tool may be running, so nobody judges or undoes it until that is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effectfence_pg import ClosureAborted, EffectCert, FenceError, Fresh, IntentFailed, IntentInFlight, PreparedEffect
from tests.support.speculation import UNDO, ran
from tests.support.world import World


def by_branch(world: World) -> PreparedEffect:
    prepared = world.admit("running", branch="plan", compensation=UNDO)
    world.fence.abort_branch("plan", "contradicted")
    return prepared


def by_intent(world: World) -> PreparedEffect:
    prepared = world.admit("running", compensation=UNDO)
    world.fence.abort_intent("running", attempt=1, reason="contradicted")
    return prepared


def by_cascade(world: World) -> PreparedEffect:
    ran(world, "base", branch="plan")
    prepared = world.admit("running", observes=["base"], compensation=UNDO)
    world.fence.abort_branch("plan", "contradicted")
    return prepared


def by_reconciling_its_branch(world: World) -> PreparedEffect:
    prepared = world.admit("running", branch="plan", compensation=UNDO)
    world.fence.abort(world.admit("failing", branch="plan"), "went wrong")
    world.fence.reconcile_branch("plan")
    return prepared


@pytest.fixture(params=[by_branch, by_intent, by_cascade, by_reconciling_its_branch])
def running(world: World, request: pytest.FixtureRequest) -> PreparedEffect:
    """The ticket of an effect that was rolled back while its tool may be running."""
    prepared = request.param(world)
    assert world.state("running") == "aborted"
    assert world.effect("running")["lease_expires_at"] == prepared.lease_expires_at
    return prepared


JUDGEMENTS: dict[str, Callable[[World], object]] = {
    "happened": lambda w: w.fence.reconcile(
        "running", attempt=1, outcome="happened", result=1, evidence=1, operator="o"
    ),
    "did not happen": lambda w: w.fence.clear("running", attempt=1, basis="holder_dead", evidence=1, operator="o"),
    "compensated": lambda w: w.fence.reconcile("running", attempt=1, outcome="compensated", evidence=1, operator="o"),
    "compensation": lambda w: w.fence.prepare_compensation("running", attempt=1, agent="undoer"),
}


def check_nobody_judges_it(world: World) -> None:
    before = world.rows()
    for judge in JUDGEMENTS.values():
        with pytest.raises(IntentInFlight):
            judge(world)
        assert world.rows() == before


def test_until_its_holder_reports_nobody_judges_or_undoes_it(world: World, running: PreparedEffect) -> None:
    check_nobody_judges_it(world)
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request("running", branch=running.branch))
    with pytest.raises(ClosureAborted):
        world.fence.renew(running)
    check_nobody_judges_it(world)


def test_a_result_reported_is_kept_and_can_be_undone(world: World, running: PreparedEffect) -> None:
    with pytest.raises(ClosureAborted):
        world.fence.commit(running, "it did run")
    assert (world.effect("running")["result"], world.state("running")) == ('"it did run"', "aborted")
    assert world.effect("running")["lease_expires_at"] is None
    before = world.rows()
    with pytest.raises(ClosureAborted):
        world.fence.commit(running, "it did run")
    assert world.rows() == before, "reported twice is reported once"
    undoing = world.fence.prepare_compensation("running", attempt=1, agent="undoer")
    assert isinstance(undoing, Fresh)
    assert isinstance(world.fence.commit(undoing.prepared, "refunded"), EffectCert)
    assert world.state("running") == "released"


def test_that_nothing_happened_makes_it_runnable_again(world: World, running: PreparedEffect) -> None:
    assert world.fence.abort(running, "never sent", effect="none").state == "released"
    assert world.admit("running", branch=f"not {running.branch}").attempt == 2


@pytest.mark.parametrize("judgement", ["happened", "did not happen", "compensated", "compensation"])
def test_an_unknown_outcome_reported_can_be_judged(world: World, running: PreparedEffect, judgement: str) -> None:
    assert world.fence.abort(running, "connection reset").state == "aborted"
    assert world.effect("running")["lease_expires_at"] is None
    check_judged(world, judgement)


@pytest.mark.parametrize("judgement", ["happened", "did not happen", "compensated", "compensation"])
def test_once_its_lease_ran_out_it_can_be_judged(world: World, running: PreparedEffect, judgement: str) -> None:
    world.expire("running")
    check_judged(world, judgement)
    with pytest.raises(FenceError):
        world.fence.commit(running, "it did run")
    assert world.effect("running")["result"] in {'"it did run"', "1"}


def check_judged(world: World, judgement: str) -> None:
    try:
        JUDGEMENTS[judgement](world)
    except ClosureAborted:
        assert judgement == "happened", "only that is refused over a rollback"
        assert world.effect("running")["branch"] or world.edges("running")
        return
    expected = {"happened": "committed", "compensation": "aborted"}.get(judgement, "released")
    assert world.state("running") == expected


def test_one_that_is_plainly_in_flight_is_not_undone_either(world: World) -> None:
    world.admit("running", compensation=UNDO)
    check_nobody_judges_it(world)
