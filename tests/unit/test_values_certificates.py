from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from pydantic import ValidationError

from effectfence_pg.errors import Blocker, InvalidRequest
from effectfence_pg.values import (
    HASHED_FIELDS,
    EffectCert,
    EffectStatus,
    FenceStats,
    ReadSetEntry,
    VectorClock,
    certificate_body,
    certificate_hash,
)

FACTS: dict[str, Any] = {
    "intent": "charge:1",
    "parent": "a" * 64,
    "domain": "order:1",
    "seq": 2**63 - 1,
    "tool": "charge",
    "args": {"n": [2**70, -(2**64), -0.0, 5e-324, 1e16, 1e-6, 0.1, 1.7976931348623157e308], "é": "\u2028\x7f"},
    "result": {"\0": "\0", "deep": [[[{"b": None, "a": True}]]]},
    "vector_clock": {"b": 2**64 - 1, "a": 0},
    "read_set": [{"domain": "y", "seq": 1}, {"domain": "x", "seq": 0}],
    "agent": "agent-é",
}
OURS: dict[str, Any] = {
    "namespace": "default",
    "attempt": 2,
    "minted_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "reconciled_over": (Blocker("other", 1, "aborted"),),
}


def cert() -> EffectCert:
    return EffectCert(**FACTS, **OURS, hash=certificate_hash(**FACTS))


def test_a_certificate_verifies_after_every_round_trip() -> None:
    given = cert()
    assert given.verify()
    for again in (
        EffectCert.model_validate_json(given.model_dump_json()),
        EffectCert.model_validate(given.model_dump()),
        EffectCert.model_validate(json.loads(given.model_dump_json())),
        EffectCert.from_body(given.body(), hash=given.hash, **OURS),
        pickle.loads(pickle.dumps(given)),
        copy.deepcopy(given),
    ):
        assert again == given
        assert again.verify()
        assert again.body() == given.body()


def test_the_wire_form_is_the_ten_fields_and_the_hash() -> None:
    wire = cert().wire()
    assert tuple(wire) == (*HASHED_FIELDS, "hash")
    again = EffectCert.model_validate_json(json.dumps(wire))
    assert again.verify()
    assert again.namespace is None
    assert wire["read_set"] == FACTS["read_set"]
    assert wire["vector_clock"] == FACTS["vector_clock"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("intent", "charge:2"),
        ("parent", None),
        ("domain", "order:2"),
        ("seq", 1),
        ("tool", "refund"),
        ("args", {}),
        ("result", None),
        ("vector_clock", {"a": 0}),
        ("read_set", FACTS["read_set"][::-1]),
        ("agent", "agent"),
        ("hash", "0" * 64),
    ],
)
def test_a_change_of_any_field_breaks_the_certificate(field: str, value: Any) -> None:
    forged = EffectCert(**{**FACTS, **OURS, "hash": cert().hash, field: value})
    assert not forged.verify()


def test_a_number_of_another_type_is_another_certificate() -> None:
    one = certificate_hash(**{**FACTS, "args": 1})
    assert one != certificate_hash(**{**FACTS, "args": 1.0})


def test_the_body_from_models_is_the_body_from_mappings() -> None:
    models = {
        **FACTS,
        "vector_clock": VectorClock(FACTS["vector_clock"]),
        "read_set": [ReadSetEntry(**entry, settled=False) for entry in FACTS["read_set"]],
    }
    assert certificate_body(**models) == certificate_body(**FACTS)
    assert certificate_hash(**FACTS) == sha256(certificate_body(**FACTS)).hexdigest()


def test_the_body_has_no_size_limit() -> None:
    assert len(certificate_body(**{**FACTS, "intent": "x" * 2_000_000})) > 2_000_000


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"args": {"s": {1}}}, "args.s"),
        ({"result": [float("nan")]}, "result[0]"),
        ({"intent": "\ud800"}, "intent"),
        ({"vector_clock": {1: 1}}, "vector_clock"),
    ],
)
def test_what_json_cannot_hold_has_no_body(edit: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        certificate_body(**{**FACTS, **edit})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "edit",
    [
        {"hash": "0" * 63},
        {"hash": "A" * 64},
        {"seq": -1},
        {"seq": True},
        {"intent": b"x"},
        {"agent": "\ud800"},
        {"result": float("inf")},
        {"vector_clock": {"a": 1.0}},
        {"minted_at": "2026-01-01T00:00:00"},
    ],
)
def test_a_malformed_certificate_is_refused(edit: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EffectCert(**{**FACTS, "hash": cert().hash, **edit})


def test_127_levels_of_result_survive_json() -> None:
    deep: Any = 1
    for _ in range(127):
        deep = [deep]
    facts = {**FACTS, "args": deep, "result": deep}
    given = EffectCert(**facts, hash=certificate_hash(**facts))
    assert EffectCert.model_validate_json(given.model_dump_json()).verify()


def test_a_status_carries_the_result_and_the_certificate_through_json() -> None:
    status = EffectStatus(
        namespace="n",
        intent="i",
        attempt=1,
        state="committed",
        domain="d",
        seq=1,
        tool="t",
        agent="a",
        admitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        has_result=True,
        result={"n": 1.0},
        certificate=cert(),
        blockers=(Blocker("j", 1, "executed"),),
    )
    assert EffectStatus.model_validate_json(status.model_dump_json()) == status


def test_stats_count_what_was_prevented() -> None:
    refused = {
        "read_set_stale": 1,
        "read_set_unsettled": 2,
        "domain_race": 3,
        "intent_in_flight": 4,
        "intent_failed": 5,
    }
    stats = FenceStats(admitted=10, replayed=20, refused={**refused, "intent_mismatch": 6})
    assert stats.prevented == 20 + 21
    assert stats.total_attempts == 10 + 20 + 21
    assert stats.wire()["refused"] == {"stale_read_set": 3, "domain_race": 3, "in_flight": 4, "prior_failure": 5}
    assert set(stats.wire()) == {"admitted", "replayed", "refused", "total_attempts", "prevented", "log_line"}
    assert "\n" not in stats.log_line
    assert json.loads(stats.model_dump_json())["prevented"] == 41
    assert FenceStats().total_attempts == 0
