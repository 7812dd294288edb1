"""A holder that reports when its effect was decided without it: refused, and nothing it says is lost."""

from __future__ import annotations

import json

import pytest

from effectfence_pg import ClosureAborted, EffectCert, Fresh, IntentFailed, LeaseLost, Replay
from tests.support.rows import all_of
from tests.support.world import World


def evidence(world: World, intent: str = "charge:1") -> list[tuple[int, str, str, str]]:
    """Attempt, from, to and evidence of every late report."""
    return all_of(
        world.engine,
        "SELECT t.attempt, t.from_state, t.to_state, t.evidence FROM effectfence.transitions t "
        "WHERE t.namespace = :n AND t.intent_key = sha256(convert_to(:intent, 'UTF8')) AND t.evidence IS NOT NULL "
        "AND t.cause IN ('late_evidence', 'reported') ORDER BY t.attempt, t.version",
        n=world.namespace,
        intent=intent,
    )


def test_a_superseded_holder_loses_its_lease_and_its_result_is_kept_as_evidence(world: World) -> None:
    old = world.put("superseded", domain="order:1")
    seq = world.seq("order:1")
    with pytest.raises(LeaseLost) as refused:
        world.fence.commit(old, {"receipt": 7})
    error = refused.value
    assert (error.attempt, error.state, error.evidence_kept) == (1, "superseded", True)
    assert evidence(world) == [(1, "superseded", "superseded", '{"receipt":7}')]
    assert world.effect(attempt=1)["result"] is None, "evidence is not the intent's result"
    assert world.seq("order:1") == seq
    assert (world.state(attempt=1), world.state(attempt=2)) == ("superseded", "in_flight")
    certificate = world.fence.commit(world.ticket("charge:1"), "by the new holder")
    assert isinstance(certificate, EffectCert)
    assert certificate.result == "by the new holder"


def test_the_same_evidence_is_kept_once(world: World) -> None:
    old = world.put("superseded")
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "done")
    before = world.rows()
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "done")
    assert world.rows() == before
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "something else")
    assert [row[3] for row in evidence(world)] == ['"done"', '"something else"']


def test_late_evidence_fences_a_released_intent_again_with_one_alarm(world: World) -> None:
    prepared = world.put("released", domain="order:1")
    seq = world.seq("order:1")
    with pytest.raises(LeaseLost) as refused:
        world.fence.commit(prepared, {"receipt": 7})
    assert refused.value.evidence_kept
    row = world.effect()
    assert (row["state"], row["failure"], row["reason"], json.loads(row["result"])) == (
        "failed",
        "late_evidence",
        "late evidence",
        {"receipt": 7},
    )
    assert evidence(world) == [(1, "released", "failed", '{"receipt":7}')]
    assert world.seq("order:1") == seq + 1
    before = world.rows()
    with pytest.raises(LeaseLost):
        world.fence.commit(prepared, {"receipt": 7})
    assert world.rows() == before, "one alarm"
    with pytest.raises(IntentFailed) as fenced:
        world.fence.prepare(world.request(domain="order:1"))
    assert fenced.value.reason == "late evidence"


def test_an_intent_fenced_by_late_evidence_is_reconciled_with_the_result_on_record(world: World) -> None:
    prepared = world.put("released")
    with pytest.raises(LeaseLost):
        world.fence.commit(prepared, "it did happen")
    status = world.fence.reconcile("charge:1", attempt=1, outcome="happened", evidence="statement", operator="op")
    assert status.state == "committed"
    assert status.certificate is not None
    assert status.certificate.result == "it did happen"
    assert isinstance(world.fence.prepare(world.request()), Replay)


def test_with_a_newer_attempt_late_evidence_is_evidence_only(world: World) -> None:
    old = world.put("released")
    assert isinstance(world.fence.prepare(world.request()), Fresh)
    with pytest.raises(LeaseLost) as refused:
        world.fence.commit(old, "it did happen")
    assert refused.value.evidence_kept
    assert evidence(world) == [(1, "released", "released", '"it did happen"')]
    assert (world.state(attempt=1), world.state(attempt=2)) == ("released", "in_flight")
    before = world.rows()
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "it did happen")
    assert world.rows() == before


def test_an_intent_fenced_again_takes_its_dependents_with_it(world: World) -> None:
    """Nothing may rest on it: an operator released it, and it did happen."""
    world.hold("base")
    reader = world.admit("reader", observes=["base"])
    world.edit("base", state="released", result=None)
    base = world.ticket("base")
    with pytest.raises(LeaseLost):
        world.fence.commit(base, "it did happen")
    assert world.state("reader") == "aborted"
    with pytest.raises(ClosureAborted):
        world.fence.commit(reader, "done")


def test_an_aborted_effect_keeps_its_result_and_its_state(world: World) -> None:
    prepared = world.put("aborted_in_flight")
    with pytest.raises(ClosureAborted) as refused:
        world.fence.commit(prepared, {"receipt": 7})
    assert [(b.intent, b.state) for b in refused.value.blockers] == [("base:charge:1", "aborted")]
    row = world.effect()
    assert (row["state"], row["lease_expires_at"], json.loads(row["result"])) == ("aborted", None, {"receipt": 7})
    assert evidence(world) == [(1, "aborted", "aborted", '{"receipt":7}')]
    before = world.rows()
    with pytest.raises(ClosureAborted):
        world.fence.commit(prepared, {"receipt": 7})
    assert world.rows() == before
    with pytest.raises(ClosureAborted):
        world.fence.commit(prepared, "another")
    assert json.loads(world.effect()["result"]) == {"receipt": 7}, "the first result is kept"


def test_evidence_of_a_lost_holder_is_for_people_and_never_replayed(world: World) -> None:
    old = world.put("superseded")
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "by the old holder")
    world.fence.commit(world.ticket("charge:1"), "by the new holder")
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)
    assert replay.certificate.result == "by the new holder"
