"""The original's own certificates and clock digests, byte for byte."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from effectfence_pg.values import (
    EffectCert,
    EffectRequest,
    PreparedEffect,
    VectorClock,
    certificate_body,
    certificate_hash,
    read_json,
)
from effectfence_pg.values.canonical import canonical_json
from effectfence_pg.values.certificates import joined_body

# The original admitted U+0000 in args. Such a certificate verifies here; such a request is refused.
UNSTORABLE = {"key-control-chars", "all-control-escapes"}
TOKEN = "11111111-1111-4111-8111-111111111111"
VECTORS = Path(__file__).parents[1] / "vectors"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text("utf-8").splitlines()]


CERTIFICATES = lines("certificates.jsonl")
CLOCKS = lines("vector_clocks.jsonl")
each_certificate = pytest.mark.parametrize("vector", CERTIFICATES, ids=[line["id"] for line in CERTIFICATES])
each_clock = pytest.mark.parametrize("vector", CLOCKS, ids=[line["bytes"] for line in CLOCKS])


def clean(vector: dict[str, Any]) -> dict[str, Any]:
    given = dict(vector["input"])
    read = {name: read_json(given.pop(f"{name}_json")) for name in ("args", "result")}
    return {**given, **read}


def test_the_vectors_are_all_here() -> None:
    assert len(CERTIFICATES) == 33
    assert len(CLOCKS) == 7


@each_certificate
def test_certificate_bytes_and_hash_are_those_of_the_original(vector: dict[str, Any]) -> None:
    assert certificate_body(**clean(vector)) == vector["preimage"].encode()
    assert certificate_hash(**clean(vector)) == vector["hash"]


@each_certificate
def test_models_give_the_same_bytes_as_mappings(vector: dict[str, Any]) -> None:
    cert = EffectCert.model_validate({**clean(vector), "hash": vector["hash"]})
    assert cert.body() == vector["preimage"].encode()
    assert cert.verify()


@each_certificate
def test_text_that_is_canonical_already_gives_the_same_bytes(vector: dict[str, Any]) -> None:
    given = clean(vector)
    texts = {f"{name}_text": canonical_json(given.pop(name)) for name in ("args", "result")}
    assert joined_body(**given, **texts) == vector["preimage"].encode()


@each_certificate
def test_a_certificate_of_the_original_verifies_from_its_bytes_and_through_json(vector: dict[str, Any]) -> None:
    cert = EffectCert.from_body(vector["preimage"].encode(), hash=vector["hash"])
    assert cert.verify()
    again = EffectCert.model_validate_json(cert.model_dump_json())
    assert again == cert
    assert again.verify()
    wire = EffectCert.model_validate_json(json.dumps(cert.wire()))
    assert wire.verify()


@each_certificate
def test_a_ticket_certifies_the_same_bytes(vector: dict[str, Any]) -> None:
    given = clean(vector)
    result = canonical_json(given.pop("result"))
    ours = {"namespace": "n", "attempt": 1, "token": TOKEN, "fingerprint": "0" * 64, "lease_seconds": 60.0}
    if vector["id"] in UNSTORABLE:
        with pytest.raises(ValidationError, match=r"U\+0000"):
            PreparedEffect.model_validate({**given, **ours})
        return
    ticket = PreparedEffect.model_validate({**given, **ours})
    assert ticket.certificate_body(result) == vector["preimage"].encode()
    assert sha256(ticket.certificate_body(result)).hexdigest() == vector["hash"]


@each_certificate
def test_a_request_keeps_the_canonical_args_of_the_original(vector: dict[str, Any]) -> None:
    given = clean(vector)
    names = ("intent", "domain", "tool", "agent", "args", "read_set", "parent")
    if vector["id"] in UNSTORABLE:
        with pytest.raises(ValidationError, match=r"U\+0000"):
            EffectRequest.model_validate({name: given[name] for name in names})
        return
    request = EffectRequest.model_validate({name: given[name] for name in names})
    assert f'"args":{request.args_text},"result":' in vector["preimage"]


@each_clock
def test_clock_digests_are_those_of_the_original(vector: dict[str, Any]) -> None:
    assert VectorClock(vector["clock"]).digest() == vector["digest"]
    assert canonical_json(vector["clock"]) == vector["bytes"]
    assert VectorClock.model_validate_json(vector["bytes"]).digest() == vector["digest"]
