from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import (
    MAX_COUNT,
    MAX_SEQ,
    Compensation,
    EffectRequest,
    FenceConfig,
    LeaseExpiry,
    OnStale,
    ReadSetEntry,
    VectorClock,
    check_name,
    key_of,
    parse_request,
)

BASE: dict[str, Any] = {"intent": "charge:1", "domain": "order:1", "tool": "charge", "agent": "a"}


@dataclasses.dataclass
class Payment:
    currency: str
    lines: list[int]


class Basket(BaseModel):
    currency: str
    lines: list[int]


def request(**facts: Any) -> EffectRequest:
    return EffectRequest(**{**BASE, **facts})


@pytest.mark.parametrize(
    "given",
    [
        {"currency": "usd", "lines": [1]},
        Payment("usd", [1]),
        Basket(currency="usd", lines=[1]),
    ],
)
def test_f03_the_args_on_record_are_those_at_admission(given: Any) -> None:
    asked = request(args=given)
    before = (asked.args_text, asked.fingerprint, asked.model_dump_json())
    if isinstance(given, dict):
        given["currency"] = "USD"
        given["lines"].append(2)
    else:
        given.currency = "USD"
        given.lines.append(2)
    assert (asked.args_text, asked.fingerprint, asked.model_dump_json()) == before
    assert asked.args_text == '{"currency":"usd","lines":[1]}'


def test_f03_editing_the_args_of_a_request_changes_nothing_that_is_admitted() -> None:
    asked = request(args={"lines": [1], "n": 1.5}, compensation={"tool": "refund", "args": {"lines": [1]}})
    before = (asked.args_text, asked.fingerprint, asked.model_dump_json())
    asked.args["lines"].append(2)
    asked.args["flag"] = True
    asked.compensation.args["lines"].append(2)
    assert (asked.args_text, asked.fingerprint, asked.model_dump_json()) == before
    assert asked.compensation.args_text == '{"lines":[1]}'
    assert asked.model_copy(update={"tool": "other"}).args == {"lines": [1], "n": 1.5}


def test_a_copy_with_another_field_has_its_own_digests() -> None:
    asked = request(args={"amount": 1}, identity=["amount"])
    other = asked.model_copy(update={"args": {"amount": 2}})
    assert other.args_text == '{"amount":2}'
    assert other.fingerprint == request(args={"amount": 2}, identity=["amount"]).fingerprint
    with pytest.raises(ValidationError):
        asked.model_copy(update={"args": {}})
    with pytest.raises(ValidationError):
        asked.model_copy(update={"intent": ""})


def test_a_request_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        request().intent = "other"


def test_a_request_survives_copying_pickling_and_json() -> None:
    asked = request(
        args={"n": [1.5, 2**70, "é"]},
        read_set=[{"domain": "x", "seq": 1}, ReadSetEntry(domain="y", seq=2, settled=False)],
        known_clock={"a": 1, "": 0},
        identity=["n"],
        lease_seconds=5,
        on_lease_expiry="takeover",
        observes=["other"],
        compensation=Compensation(tool="refund", args={"n": 1}),
    )
    roads = (
        copy.copy,
        copy.deepcopy,
        EffectRequest.model_copy,
        lambda it: pickle.loads(pickle.dumps(it)),
        lambda it: EffectRequest.model_validate_json(it.model_dump_json()),
        lambda it: EffectRequest.model_validate(it.model_dump()),
        lambda it: EffectRequest(**json.loads(it.model_dump_json())),
    )
    for road in roads:
        again = road(asked)
        assert again == asked
        assert (again.args_text, again.fingerprint) == (asked.args_text, asked.fingerprint)


def test_the_wire_form_of_the_original_is_accepted_as_it_is() -> None:
    wire = {
        **BASE,
        "args": None,
        "read_set": [{"domain": "inventory:1", "seq": 3}],
        "parent": None,
        "known_clock": {"agent-b": 2},
    }
    asked = parse_request(wire)
    assert asked.read_set == (ReadSetEntry(domain="inventory:1", seq=3, settled=True),)
    assert asked.known_clock == VectorClock({"agent-b": 2})
    assert asked.args_text == "null"
    assert EffectRequest.model_validate_json(json.dumps(wire)) == asked
    assert parse_request(BASE) == request()
    assert parse_request({**BASE, "read_set": None, "known_clock": None, "observes": None}) == request(
        read_set=(), known_clock={}, observes=()
    )


def test_a_settled_entry_has_the_bare_form() -> None:
    assert ReadSetEntry(domain="d", seq=1).model_dump() == {"domain": "d", "seq": 1}
    assert ReadSetEntry(domain="d", seq=1, settled=False).model_dump() == {"domain": "d", "seq": 1, "settled": False}


def test_defaults_are_those_of_the_public_signature() -> None:
    asked = request()
    assert asked.args == {}
    assert (asked.read_set, asked.observes, asked.known_clock) == ((), (), VectorClock())
    assert asked.on_stale is OnStale.FAIL
    absent = ("parent", "expected_seq", "identity", "lease_seconds", "on_lease_expiry", "branch", "compensation")
    assert {getattr(asked, name) for name in absent} == {None}
    assert request(on_lease_expiry="verify").on_lease_expiry is LeaseExpiry.VERIFY
    assert (asked.intent_key, asked.domain_key) == (key_of("charge:1"), key_of("order:1"))


BAD: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, name) for name in BASE for value in ("", "\0", "a\0b", "\ud800", b"x", 1, None, True)),
    *(({"branch": value}, "branch") for value in ("", "\0", "x" * 1025)),
    ({"args": {"items": [{"when": datetime(2026, 1, 1, tzinfo=UTC)}]}}, "args.items[0].when"),
    ({"args": {"n": float("nan")}}, "args.n"),
    ({"args": {"s": "\0"}}, "args.s"),
    ({"args": {"s": "\ud800"}}, "args.s"),
    ({"read_set": [{"domain": "x", "seq": -1}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "x", "seq": True}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "x", "seq": 1.0}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "x", "seq": "1"}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "x", "seq": MAX_SEQ + 1}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "", "seq": 1}]}, "read_set[0].domain"),
    ({"read_set": [{"domain": "x"}]}, "read_set[0].seq"),
    ({"read_set": [{"domain": "x", "seq": 1, "settled": 1}]}, "read_set[0].settled"),
    ({"read_set": [{"domain": "x", "seq": 1, "extra": 1}]}, "read_set[0].extra"),
    (
        {"read_set": [{"domain": "y", "seq": 1}, {"domain": "x", "seq": 1}, {"domain": "x", "seq": 2}]},
        "read_set[2].domain",
    ),
    ({"read_set": {ReadSetEntry(domain="x", seq=1)}}, "read_set"),
    ({"read_set": {"x": 1}}, "read_set"),
    ({"expected_seq": -1}, "expected_seq"),
    ({"expected_seq": True}, "expected_seq"),
    ({"expected_seq": MAX_SEQ + 1}, "expected_seq"),
    ({"read_set": [{"domain": "order:1", "seq": 1}], "expected_seq": 2}, "expected_seq"),
    ({"parent": "A" * 64}, "parent"),
    ({"parent": "a" * 63}, "parent"),
    ({"parent": "a" * 64 + "\n"}, "parent"),
    ({"parent": ""}, "parent"),
    ({"known_clock": {"a": -1}}, "known_clock.a"),
    ({"known_clock": {"b": True}}, "known_clock.b"),
    ({"known_clock": {"b": MAX_COUNT + 1}}, "known_clock.b"),
    ({"known_clock": {"a": MAX_COUNT}}, "known_clock"),
    ({"known_clock": {"x" * 1025: 1}}, "known_clock"),
    ({"known_clock": {"x\0": 1}}, "known_clock"),
    ({"known_clock": [1]}, "known_clock"),
    ({"identity": ["missing"]}, "identity"),
    ({"identity": "amount"}, "identity"),
    ({"identity": []}, "identity"),
    ({"args": [1], "identity": ["amount"]}, "identity"),
    ({"lease_seconds": 0}, "lease_seconds"),
    ({"lease_seconds": -1.0}, "lease_seconds"),
    ({"lease_seconds": float("nan")}, "lease_seconds"),
    ({"lease_seconds": 604_801}, "lease_seconds"),
    ({"lease_seconds": True}, "lease_seconds"),
    ({"lease_seconds": "5"}, "lease_seconds"),
    ({"on_stale": "ignore"}, "on_stale"),
    ({"on_lease_expiry": "steal"}, "on_lease_expiry"),
    ({"observes": {"a"}}, "observes"),
    ({"observes": [""]}, "observes[0]"),
    ({"observes": "abc"}, "observes"),
    ({"compensation": {"tool": ""}}, "compensation.tool"),
    ({"compensation": {"args": {}}}, "compensation.tool"),
    ({"compensation": {"tool": "t", "args": {"x": [b""]}}}, "compensation.args.x[0]"),
    ({"unknown": 1}, "unknown"),
]


@pytest.mark.parametrize(("facts", "field"), BAD, ids=str)
def test_bad_input_is_refused_by_its_field(facts: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        request(**facts)
    assert refused.value.errors()[0]["loc"][0] == next(iter(field.replace("[", ".").split(".")))
    with pytest.raises(InvalidRequest) as typed:
        parse_request({**BASE, **facts})
    assert typed.value.field == field


@pytest.mark.parametrize("missing", list(BASE))
def test_a_required_field_is_named_when_it_is_missing(missing: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request({name: value for name, value in BASE.items() if name != missing})
    assert (refused.value.field, refused.value.reason) == (missing, "is required")


@pytest.mark.parametrize("given", [None, [], "text", 1, b"{}"])
def test_what_is_no_request_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(given)
    assert refused.value.field == "request"


def test_a_refusal_does_not_repeat_the_values() -> None:
    with pytest.raises(ValidationError) as refused:
        request(intent="", args={"card": "4242424242424242"}, unknown="secret")
    assert "4242" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", list(BASE))
@pytest.mark.parametrize("key", ["k" * 10_000, "k" * 1_000_000, "é" * 513, "\U0001f600" * 257])
def test_f09_a_long_key_is_a_clear_error_at_once(name: str, key: str) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidRequest) as refused:
        parse_request({**BASE, name: key})
    assert time.perf_counter() - started < 1.0
    assert refused.value.field == name
    assert refused.value.reason == "is longer than 1024 bytes of UTF-8"
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("key", ["k" * 1024, "é" * 512, "\U0001f600" * 256, " ", "a:b", '"\n'])
def test_f09_a_key_at_the_limit_is_taken(key: str) -> None:
    assert {getattr(request(**{name: key}), name) for name in BASE} == {key}


def test_a_namespace_has_a_limit_of_its_own() -> None:
    assert check_name("n" * 128, field="namespace", max_bytes=128) == "n" * 128
    for bad in ("n" * 129, "é" * 65, "", "\0", "\ud800", 1, None, b"n"):
        with pytest.raises(InvalidRequest) as refused:
            check_name(bad, field="namespace", max_bytes=128)
        assert refused.value.field == "namespace"


def test_the_own_domain_may_be_in_the_read_set_when_it_agrees() -> None:
    assert request(read_set=[{"domain": "order:1", "seq": 2}], expected_seq=2).expected_seq == 2
    assert request(read_set=[{"domain": "order:1", "seq": 2}], expected_seq=None).expected_seq is None


def test_observed_intents_are_named_once() -> None:
    assert request(observes=["b", "a", "b"]).observes == ("b", "a")


@pytest.mark.parametrize(
    ("facts", "config", "field"),
    [
        ({"args": {"s": "x" * 100}}, {"max_args_bytes": 107}, "args"),
        ({"args": {"s": "é" * 50}}, {"max_args_bytes": 107}, "args"),
        ({"compensation": {"tool": "t", "args": "x" * 100}}, {"max_args_bytes": 100}, "compensation.args"),
        ({"known_clock": {"a": 1, "b": 1}}, {"max_clock_entries": 1}, "known_clock"),
        ({"read_set": [{"domain": "x", "seq": 1}, {"domain": "y", "seq": 1}]}, {"max_read_set_entries": 1}, "read_set"),
        ({"observes": ["x", "y"]}, {"max_observed_intents": 1}, "observes"),
    ],
)
def test_sizes_beyond_the_configured_limit_are_refused(facts: Any, config: Any, field: str) -> None:
    asked = request(**facts)
    asked.check(FenceConfig())
    with pytest.raises(InvalidRequest) as refused:
        asked.check(FenceConfig(**config))
    assert refused.value.field == field


def test_args_of_exactly_the_limit_are_taken() -> None:
    request(args={"s": "é" * 50}).check(FenceConfig(max_args_bytes=108))


@pytest.mark.parametrize(
    "facts",
    [
        {"lease_seconds": 0},
        {"lease_seconds": 604_801},
        {"lease_seconds": True},
        {"renewal_fraction": 1.0},
        {"max_args_bytes": 0},
        {"max_closure_members": 0},
        {"retry_deadline_seconds": float("inf")},
        {"poll_initial_seconds": 2.0},
        {"pool_size": 0},
        {"prepare_threshold": -1},
        {"application_name": "x" * 64},
        {"lease": 5},
    ],
)
def test_a_config_out_of_bounds_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FenceConfig(**facts)


def test_a_config_may_turn_prepared_statements_off() -> None:
    assert FenceConfig(prepare_threshold=None).prepare_threshold is None
