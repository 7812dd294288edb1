from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from effectfence_pg import errors
from effectfence_pg.errors import Blocker, FenceError, MovedEntry, UnsettledEntry
from effectfence_pg.values import EffectCert, certificate_body

BODY = certificate_body(
    intent="i",
    parent=None,
    domain="d",
    seq=1,
    tool="t",
    args={},
    result=None,
    vector_clock={"a": 1},
    read_set=[],
    agent="a",
)
BLOCKERS = (Blocker("charge:1", 2, "executed"),)
DIGEST = "0" * 64

EVERY: list[tuple[type[FenceError], dict[str, Any]]] = [
    (errors.InvalidRequest, {"field": "args.items[3].when", "reason": "datetime is no JSON type"}),
    (
        errors.IntentInFlight,
        {
            "intent": "i",
            "attempt": 1,
            "holder": "a",
            "since": datetime(2026, 1, 1, tzinfo=UTC),
            "retry_after_seconds": 59.9,
            "held": False,
            "blockers": (),
        },
    ),
    (
        errors.IntentFailed,
        {
            "intent": "i",
            "attempt": 1,
            "state": "failed",
            "reason": "lease expired, outcome unknown",
            "way_out": "reconcile",
        },
    ),
    (
        errors.IntentMismatch,
        {
            "intent": "i",
            "attempt": 1,
            "field": "args",
            "stored_identity": DIGEST,
            "given_identity": DIGEST,
            "stored_args": DIGEST,
            "given_args": DIGEST,
            "stored_declaration": None,
            "given_declaration": ("order",),
        },
    ),
    (errors.UnknownParent, {"parent": DIGEST}),
    (errors.UnknownIntent, {"intent": "i"}),
    (
        errors.ReadSetStale,
        {"entries": (MovedEntry("d", 1, 2),), "effect_ran": True, "intent": "i", "attempt": 1},
    ),
    (
        errors.ReadSetUnsettled,
        {"entries": (UnsettledEntry("d", 1, BLOCKERS),), "effect_ran": False, "intent": "i", "attempt": None},
    ),
    (errors.DomainRace, {"domain": "d", "expected": 1, "actual": 2}),
    (
        errors.LeaseLost,
        {"intent": "i", "attempt": 1, "state": "superseded", "reason": "taken over", "evidence_kept": True},
    ),
    (errors.UnknownTicket, {"intent": "i", "attempt": 1}),
    (errors.TicketMismatch, {"intent": "i", "attempt": 1, "fields": ("seq", "agent")}),
    (
        errors.CommitConflict,
        {"intent": "i", "attempt": 1, "certificate": EffectCert.from_body(BODY), "reason": "another result"},
    ),
    (errors.ClosurePending, {"intent": "i", "attempt": 1, "blockers": BLOCKERS}),
    (errors.ClosureAborted, {"intent": "i", "attempt": 1, "blockers": BLOCKERS, "reason": "rolled back"}),
    (errors.ClosureTooLarge, {"intent": "i", "limit": 100_000}),
    (errors.AttemptMismatch, {"intent": "i", "given": 1, "current": 2}),
    (errors.NotReconcilable, {"intent": "i", "attempt": 1, "state": "committed", "outcome": "happened"}),
    (errors.SerializationConflict, {"sqlstate": "40001"}),
    (errors.IsolationTooWeak, {"isolation": "read committed"}),
    (errors.SchemaVersionError, {"found": None, "expected": "0001", "command": "effectfence-pg migrate"}),
    (errors.DatabaseUnavailable, {"reason": "connection refused"}),
    (errors.DatabaseEncodingError, {"encoding": "SQL_ASCII"}),
    (errors.DatabaseFailure, {"reason": 'column "seq" already exists', "sqlstate": "42701"}),
    (errors.PermissionDenied, {"reason": "permission denied for table effects"}),
    (errors.RetriesExhausted, {"attempts": 40, "elapsed_seconds": 30.2, "sqlstate": "40001"}),
    (errors.BranchDecided, {"branch": "b", "state": "aborted"}),
    (errors.UnknownBranch, {"branch": "b"}),
    (errors.ResultNotRecordable, {"intent": "i", "reason": "result.at: datetime is no JSON type"}),
    (errors.FenceClosed, {"namespace": "default"}),
    (errors.ToolUnfinished, {"intent": "i", "returned": "coroutine", "rolled_back": False}),
    (errors.ResultNotReplayable, {"intent": "i", "attempt": 1, "reason": "result.at: datetime is no JSON type"}),
]
each = pytest.mark.parametrize(("kind", "facts"), EVERY, ids=[kind.__name__ for kind, _ in EVERY])


def test_every_public_refusal_is_tested_here() -> None:
    public = {getattr(errors, name) for name in errors.__all__}
    refusals = {kind for kind in public if issubclass(kind, Exception)} - {FenceError}
    assert refusals == {kind for kind, _ in EVERY}


@each
def test_a_refusal_carries_its_facts_as_attributes(kind: type[FenceError], facts: dict[str, Any]) -> None:
    error = kind(**facts)
    assert {name: getattr(error, name) for name in facts} == facts
    assert set(facts) <= set(error.facts())


@each
def test_a_refusal_is_one_sentence_with_an_advice(kind: type[FenceError], facts: dict[str, Any]) -> None:
    error = kind(**facts)
    message = str(error)
    assert message
    assert "\n" not in message
    assert "{" not in message
    assert error.advice.endswith(".")
    assert error.advice != FenceError.advice


@each
def test_a_refusal_crosses_processes(kind: type[FenceError], facts: dict[str, Any]) -> None:
    error = kind(**facts)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert other.as_dict() == error.as_dict()
        assert {name: getattr(other, name) for name in facts} == facts


@each
def test_a_refusal_is_ready_for_json(kind: type[FenceError], facts: dict[str, Any]) -> None:
    report = json.loads(json.dumps(kind(**facts).as_dict()))
    assert report["code"] == kind.code
    assert set(report) == {"code", "message", "retryable", "advice", "facts"}


@each
def test_facts_are_given_by_name_only(kind: type[FenceError], facts: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        kind(*facts.values())


def test_codes_are_the_class_names_in_snake_case_and_distinct() -> None:
    codes = {kind.code for kind, _ in EVERY}
    assert len(codes) == len(EVERY)
    assert {"intent_in_flight", "read_set_stale", "schema_version_error", "domain_race"} <= codes
    assert FenceError.code == "fence_error"


def test_what_waiting_can_mend_is_retryable_and_nothing_else() -> None:
    assert {kind.code for kind, _ in EVERY if kind.retryable} == {
        "intent_in_flight",
        "closure_pending",
        "serialization_conflict",
        "database_unavailable",
        "retries_exhausted",
    }


def test_a_model_can_tell_waiting_asking_and_reading_again_apart() -> None:
    assert "Wait" in errors.IntentInFlight.advice
    assert "operator" in errors.IntentFailed.advice
    assert "Read" in errors.ReadSetStale.advice
    assert "operator" not in errors.IntentInFlight.advice
    assert "operator" not in errors.ReadSetStale.advice


def test_after_the_effect_ran_the_advice_is_not_to_decide_again() -> None:
    ran = errors.ReadSetStale(entries=(MovedEntry("d", 1, 2),), effect_ran=True)
    assert "did run" in str(ran)
    assert "operator" in ran.advice
    assert "operator" not in errors.ReadSetStale(entries=(MovedEntry("d", 1, 2),)).advice


def test_a_held_intent_names_what_decides_it() -> None:
    held = errors.IntentInFlight(intent="i", attempt=1, holder="a", held=True, blockers=BLOCKERS)
    assert "charge:1" in str(held)
    assert "decided" in held.advice
    assert held.retry_after_seconds is None


def test_a_domain_race_is_a_stale_read_set_with_its_entry() -> None:
    race = errors.DomainRace(domain="d", expected=1, actual=2)
    assert isinstance(race, errors.ReadSetStale)
    assert race.entries == (MovedEntry("d", 1, 2),)


def test_an_invalid_request_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^args: no$"):
        raise errors.InvalidRequest(field="args", reason="no")


def test_a_ticket_mismatch_names_the_first_field() -> None:
    assert errors.TicketMismatch(intent="i", attempt=1, fields=("seq", "agent")).field == "seq"


def test_a_long_list_of_entries_stays_a_sentence() -> None:
    stale = errors.ReadSetStale(entries=tuple(MovedEntry(f"d{number}", 1, 2) for number in range(200)))
    assert len(str(stale)) < 400
    assert "195 more" in str(stale)


def test_a_conflict_carries_the_certificate_in_its_wire_form() -> None:
    conflict = errors.CommitConflict(intent="i", attempt=1, certificate=EffectCert.from_body(BODY))
    assert conflict.facts()["certificate"] == EffectCert.from_body(BODY).wire()
