from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from effectfence_pg.values import (
    EffectCert,
    EffectRequest,
    PreparedEffect,
    canonical_json,
    certificate_hash,
    parse_prepared,
    read_json,
    same_action,
    to_json_value,
    value_digest,
)

unhurried = settings(deadline=None)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | floats | st.text()
values = st.recursive(
    scalars, lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4), max_leaves=20
)
storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
args = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | floats | storable,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(storable, part, max_size=4),
    max_leaves=20,
)
names = storable.filter(bool)


def reference(value: Any) -> str:
    """Write the byte rules down a second time, as slowly as they read."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{reference(key)}:{reference(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(reference, value)) + "]"
    if isinstance(value, float):
        return reference_float(value)
    if isinstance(value, str):
        return '"' + "".join(map(reference_character, value)) + '"'
    return {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else str(value)


def reference_character(character: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    return short.get(character) or (f"\\u{ord(character):04x}" if character < " " else character)


def reference_float(number: float) -> str:
    sign, parts, exponent = Decimal(repr(number)).normalize().as_tuple()
    digits, minus = "".join(map(str, parts)), "-" * sign
    if number == 0:
        return f"{minus}0.0"
    point = len(digits) + int(exponent)
    if -5 < point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    if 0 < point <= 16:
        whole, rest = digits[:point].ljust(point, "0"), digits[point:]
        return f"{minus}{whole}.{rest or '0'}"
    rest = f".{digits[1:]}" if digits[1:] else ""
    return f"{minus}{digits[0]}{rest}e{point - 1:+d}"


def shuffled(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], data) for key in data.draw(st.permutations(list(value)))}
    return [shuffled(part, data) for part in value] if isinstance(value, list) else value


def javascript(value: Any) -> Any:
    """Return the value as a reader without integers of its own would hand it on."""
    if isinstance(value, dict):
        return {key: javascript(part) for key, part in value.items()}
    if isinstance(value, list):
        return [javascript(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53:
        return float(value)
    return value


@unhurried
@given(values)
def test_canonical_json_follows_the_byte_rules(value: Any) -> None:
    assert canonical_json(value) == reference(value)


@settings(deadline=None, max_examples=500)
@given(floats | st.floats(-1e-3, 1e-3) | st.floats(1e14, 1e18))
def test_every_double_is_written_by_the_rules_and_read_back(number: float) -> None:
    assert canonical_json(number) == reference_float(number)
    assert repr(read_json(canonical_json(number))) == repr(number)


@unhurried
@given(values)
def test_canonical_json_reads_back_to_the_same_value(value: Any) -> None:
    text = canonical_json(value)
    assert repr(json.loads(text)) == repr(read_json(text))
    assert canonical_json(read_json(text)) == text
    assert read_json(text) == value


@unhurried
@given(values, st.data())
def test_canonical_json_does_not_depend_on_key_order(value: Any, data: st.DataObject) -> None:
    assert canonical_json(shuffled(value, data)) == canonical_json(value)
    assert value_digest(shuffled(value, data)) == value_digest(value)


@unhurried
@given(values)
def test_a_plain_value_is_copied_as_it_is(value: Any) -> None:
    copy = to_json_value(value, field="args")
    assert repr(copy) == repr(value)
    assert canonical_json(copy) == canonical_json(value)


@unhurried
@given(args)
def test_f05_a_javascript_hop_keeps_the_identity(value: Any) -> None:
    base = {"intent": "i", "domain": "d", "tool": "t", "agent": "a"}
    one, other = EffectRequest(**base, args=value), EffectRequest(**base, args=javascript(value))
    assert same_action(one.fingerprint, other.fingerprint)
    assert value_digest(value) == value_digest(javascript(value))


@unhurried
@given(values, values)
def test_f05_digests_agree_when_values_do(one: Any, other: Any) -> None:
    def strict(value: Any) -> Any:
        # Python takes True for 1; an identity does not.
        if isinstance(value, dict):
            return {key: strict(part) for key, part in value.items()}
        return [strict(part) for part in value] if isinstance(value, list) else (isinstance(value, bool), value)

    assert (value_digest(one) == value_digest(other)) == (strict(one) == strict(other))


@unhurried
@given(
    st.fixed_dictionaries(
        {
            "intent": names,
            "parent": st.none(),
            "domain": names,
            "seq": st.integers(0, 2**63 - 1),
            "tool": names,
            "args": args,
            "result": values,
            "vector_clock": st.dictionaries(st.text(), st.integers(0, 2**64 - 1), max_size=3),
            "read_set": st.just([{"domain": "d", "seq": 0}]),
            "agent": names,
        }
    )
)
def test_a_certificate_verifies_after_a_round_trip_through_json(facts: dict[str, Any]) -> None:
    cert = EffectCert(**facts, hash=certificate_hash(**facts))
    again = EffectCert.model_validate_json(cert.model_dump_json())
    assert again.verify()
    assert again.body() == cert.body()
    stored = EffectCert.from_body(cert.body(), hash=cert.hash)
    assert stored.verify()
    assert stored == again


@unhurried
@given(names, names, args)
def test_a_ticket_goes_through_json_unchanged(intent: str, domain: str, given_args: Any) -> None:
    request = EffectRequest(intent=intent, domain=domain, tool="t", agent="a", args=given_args)
    ticket = PreparedEffect(
        intent=intent,
        domain=domain,
        seq=1,
        tool="t",
        args=given_args,
        vector_clock={"a": 1},
        agent="a",
        namespace="n",
        attempt=1,
        token="11111111-1111-4111-8111-111111111111",
        fingerprint=request.fingerprint.args_digest.hex(),
        lease_seconds=1.0,
    )
    again = parse_prepared(json.loads(ticket.model_dump_json()))
    assert again == ticket
    assert again.args_text == request.args_text
    assert again.args_digest == request.fingerprint.args_digest
