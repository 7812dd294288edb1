"""reconcile and clear: an operator says what happened to one attempt, and the protocol acts on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effectfence_pg import (
    AttemptMismatch,
    ClosureAborted,
    CommitConflict,
    EffectStatus,
    Fresh,
    IntentInFlight,
    InvalidRequest,
    LeaseLost,
    NotReconcilable,
    ReadSetStale,
    Replay,
    UnknownIntent,
)
from tests.support.rows import all_of
from tests.support.world import World


def judge(world: World, outcome: str, intent: str = "charge:1", **more: Any) -> EffectStatus:
    facts = {"attempt": 1, "evidence": {"ticket": 12}, "operator": "olga"}
    if outcome == "did_not_happen":
        facts["basis"] = "holder_dead"
    if outcome == "happened" and "result" not in more:
        facts["result"] = "seen downstream"
    return world.fence.reconcile(intent, outcome=outcome, **{**facts, **more})


@pytest.mark.parametrize("state", ["failed", "expired", "aborted_in_flight"])
def test_what_happened_is_certified_with_the_result_that_was_found(world: World, state: str) -> None:
    if state == "aborted_in_flight":
        prepared = world.hold(domain="order:1")
        world.edit("charge:1", state="aborted", result=None)
    else:
        prepared = world.put(state, domain="order:1")
    seq = world.seq("order:1")
    status = judge(world, "happened", result={"receipt": 7})
    assert status.state == "committed"
    assert status.certificate is not None
    assert status.certificate.result == {"receipt": 7}
    assert status.certificate.seq == prepared.seq
    assert status.certificate.verify()
    assert world.history()[-1][2:] == ("committed", "reconciled_happened", "olga")
    assert world.seq("order:1") == seq + (2 if state == "expired" else 1)
    replay = world.fence.prepare(world.request(domain="order:1"))
    assert isinstance(replay, Replay)
    assert replay.certificate == status.certificate


@pytest.mark.parametrize("state", ["failed", "expired"])
@pytest.mark.parametrize("basis", ["holder_dead", "fenced_downstream"])
def test_what_did_not_happen_is_runnable_again_exactly_once(world: World, state: str, basis: str) -> None:
    old = world.put(state)
    status = world.fence.clear("charge:1", attempt=1, basis=basis, evidence="no charge at the bank", operator="olga")
    assert (status.state, status.attempt) == ("released", 1)
    assert world.history()[-1] == (1, "failed", "released", "reconciled_did_not_happen", "olga")
    assert isinstance(world.fence.prepare(world.request()), Fresh)
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request())
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "it did happen after all")
    assert world.state(attempt=2) == "in_flight"


def test_the_evidence_and_its_basis_are_on_record(world: World) -> None:
    world.put("failed")
    judge(world, "did_not_happen", basis="fenced_downstream", evidence={"asked": "bank", "answer": None})
    [(cause, actor, evidence)] = all_of(
        world.engine,
        "SELECT cause, actor, evidence FROM effectfence.transitions WHERE namespace = :n AND evidence IS NOT NULL",
        n=world.namespace,
    )
    assert (cause, actor) == ("reconciled_did_not_happen", "olga")
    assert json.loads(evidence) == {
        "outcome": "did_not_happen",
        "basis": "fenced_downstream",
        "evidence": {"asked": "bank", "answer": None},
    }


@pytest.mark.parametrize("state", ["failed", "aborted", "expired"])
def test_what_was_compensated_is_released(world: World, state: str) -> None:
    world.put(state)
    assert judge(world, "compensated").state == "released"
    assert world.moves()[-1][1:] == ("released", "reconciled_compensated")
    assert isinstance(world.fence.prepare(world.request()), Fresh)


@pytest.mark.parametrize("outcome", ["happened", "did_not_happen", "compensated"])
def test_while_its_tool_may_be_running_nobody_can_judge(world: World, outcome: str) -> None:
    for state in ("in_flight", "aborted_in_flight"):
        prepared = world.put(state, state)
        before = world.rows()
        with pytest.raises(IntentInFlight) as refused:
            judge(world, outcome, state)
        assert refused.value.retry_after_seconds is not None
        assert refused.value.retry_after_seconds > 50
        assert world.rows() == before
        assert prepared.attempt == 1


def test_an_effect_aborted_in_flight_can_be_judged_once_its_lease_ran_out(world: World) -> None:
    world.put("aborted_in_flight")
    world.expire()
    assert judge(world, "did_not_happen").state == "released"


def test_an_effect_aborted_in_flight_can_be_judged_once_its_holder_reported(world: World) -> None:
    prepared = world.put("aborted_in_flight")
    with pytest.raises(ClosureAborted):
        world.fence.commit(prepared, "done")
    assert judge(world, "compensated").state == "released"


@pytest.mark.parametrize("state", ["executed", "committed", "released"])
@pytest.mark.parametrize("outcome", ["happened", "did_not_happen", "compensated"])
def test_a_decided_or_held_effect_has_nothing_to_judge(world: World, state: str, outcome: str) -> None:
    world.put(state)
    before = world.rows()
    with pytest.raises(NotReconcilable) as refused:
        judge(world, outcome)
    assert (refused.value.state, refused.value.outcome, refused.value.attempt) == (state, outcome, 1)
    assert world.rows() == before


@pytest.mark.parametrize("judged", [1, 3])
def test_a_verdict_about_another_attempt_is_refused(world: World, judged: int) -> None:
    world.put("superseded")
    world.fence.abort(world.ticket("charge:1"), "went wrong")
    before = world.rows()
    with pytest.raises(AttemptMismatch) as refused:
        judge(world, "happened", attempt=judged)
    assert (refused.value.given, refused.value.current) == (judged, 2)
    assert world.rows() == before
    assert judge(world, "happened", attempt=2).state == "committed"


def test_an_intent_that_nobody_knows_cannot_be_judged(world: World) -> None:
    with pytest.raises(UnknownIntent):
        judge(world, "happened")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no basis": ({"outcome": "did_not_happen", "basis": None}, "basis"),
    "odd basis": ({"outcome": "did_not_happen", "basis": "gut feeling"}, "basis"),
    "basis of happened": ({"outcome": "happened", "basis": "holder_dead"}, "basis"),
    "odd outcome": ({"outcome": "maybe"}, "outcome"),
    "result of nothing": ({"outcome": "did_not_happen", "result": 1}, "result"),
    "over nothing": ({"outcome": "compensated", "over": True}, "over"),
    "over perhaps": ({"outcome": "happened", "over": None}, "over"),
    "no operator": ({"outcome": "happened", "operator": ""}, "operator"),
    "attempt 0": ({"outcome": "happened", "attempt": 0}, "attempt"),
    "no result": ({"outcome": "happened", "result": None}, "result"),
    "evidence": ({"outcome": "happened", "evidence": "a\0b"}, "evidence"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_verdict_that_makes_no_sense_changes_nothing_and_names_the_field(world: World, bad: str) -> None:
    more, field = BAD[bad]
    world.put("failed")
    before = world.rows()
    with pytest.raises(InvalidRequest) as refused:
        judge(world, **more)
    assert refused.value.field == field
    assert world.rows() == before


def stale(world: World) -> None:
    prepared = world.admit(read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale):
        world.fence.commit(prepared, "reported")


def test_a_result_on_record_needs_no_other(world: World) -> None:
    stale(world)
    status = judge(world, "happened", result=None)
    assert status.certificate is not None
    assert status.certificate.result == "reported"


def test_a_result_on_record_cannot_be_judged_away(world: World) -> None:
    stale(world)
    before = world.rows()
    with pytest.raises(CommitConflict):
        judge(world, "happened", result="something else")
    with pytest.raises(NotReconcilable):
        judge(world, "did_not_happen")
    assert world.rows() == before
    assert judge(world, "compensated").state == "released"


def test_a_judgement_that_ran_twice_is_recorded_once(world: World) -> None:
    """The answer of the first run was lost on the way."""
    world.put("failed")
    operation = world.fence._calls.reconcile(
        "charge:1", attempt=1, outcome="happened", result=1, evidence=1, operator="olga", basis=None, over=False
    )
    world.fence._run(operation)
    before = world.rows()
    world.fence._run(operation)
    assert world.rows() == before
