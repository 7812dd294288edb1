from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from effectfence_pg.errors import Blocker, InvalidRequest
from effectfence_pg.values import (
    EffectCert,
    EffectRequest,
    Fresh,
    Held,
    PreparedEffect,
    ReadSetEntry,
    Replay,
    VectorClock,
    certificate_body,
    parse_prepared,
)

WIRE = ("intent", "parent", "domain", "seq", "tool", "args", "vector_clock", "read_set", "agent")
ARGS = {"amount": 4900, "rate": 1e-6, "z": -0.0, "big": 2**80, "note": "é\u2028", "deep": [{"b": 1, "a": [1.0]}]}


def ticket(**facts: Any) -> PreparedEffect:
    request = EffectRequest(
        intent="charge:1",
        domain="order:1",
        tool="charge",
        agent="agent-é",
        args=ARGS,
        read_set=[{"domain": "x", "seq": 1}],
        parent="a" * 64,
        branch="plan",
    )
    given: dict[str, Any] = {
        "namespace": "default",
        "seq": 3,
        "vector_clock": VectorClock({"agent-é": 2**64 - 1, "": 0}),
        "read_set": request.read_set,
        "attempt": 1,
        "token": UUID(int=7),
        "lease_seconds": 60.0,
        "lease_expires_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    }
    return PreparedEffect.admitted(request, **{**given, **facts})


def test_a_ticket_goes_through_json_and_back_unchanged() -> None:
    given = ticket()
    for again in (
        PreparedEffect.model_validate_json(given.model_dump_json()),
        PreparedEffect.model_validate(json.loads(json.dumps(given.model_dump(mode="json")))),
        parse_prepared(given.model_dump(mode="json")),
        parse_prepared(given.model_dump()),
        pickle.loads(pickle.dumps(given)),
        copy.deepcopy(given),
    ):
        assert again == given
        assert again.args_text == given.args_text
        assert again.args_digest == given.args_digest
        assert again.model_dump_json() == given.model_dump_json()


def test_a_ticket_has_the_original_fields_first_and_in_their_order() -> None:
    wire = json.loads(ticket().model_dump_json())
    assert tuple(wire)[:9] == WIRE
    assert wire["vector_clock"] == {"agent-é": 2**64 - 1, "": 0}
    assert wire["read_set"] == [{"domain": "x", "seq": 1}]
    assert wire["token"] == str(UUID(int=7))


def test_a_ticket_built_from_trusted_facts_is_one_that_validates() -> None:
    given = ticket()
    assert PreparedEffect(**{name: getattr(given, name) for name in PreparedEffect.model_fields}) == given
    assert bytes.fromhex(given.fingerprint) == given.args_digest


def test_f03_a_tool_that_edits_the_args_of_its_ticket_is_no_forger() -> None:
    given = ticket()
    before = (given.args_digest, given.args_text, given.model_dump_json(), given.certificate_body("null"))
    given.args["amount"] = 1
    given.args["deep"][0]["a"].append(2)
    assert (given.args_digest, given.args_text, given.model_dump_json(), given.certificate_body("null")) == before


def test_f03_the_ticket_is_not_touched_by_edits_of_the_request() -> None:
    request = EffectRequest(intent="i", domain="d", tool="t", agent="a", args={"l": [1]})
    request.args["l"].append(2)
    made = PreparedEffect.admitted(
        request,
        namespace="n",
        seq=1,
        vector_clock=VectorClock(),
        read_set=(),
        attempt=1,
        token=UUID(int=1),
        lease_seconds=1.0,
        lease_expires_at=None,
    )
    assert made.args == {"l": [1]}


@pytest.mark.parametrize("edit", [{"args": {"amount": 1}}, {"domain": "order:2"}, {"tool": "refund"}])
def test_an_edited_ticket_has_another_digest(edit: dict[str, Any]) -> None:
    given = ticket()
    edited = parse_prepared({**given.model_dump(mode="json"), **edit})
    assert edited.args_digest != given.args_digest
    assert edited.fingerprint == given.fingerprint
    assert given.model_copy(update=edit).args_digest == edited.args_digest


def test_a_javascript_hop_does_not_make_a_ticket_edited() -> None:
    hopped = json.loads(ticket().model_dump_json())
    hopped["args"]["z"] = 0
    hopped["args"]["deep"][0]["a"] = [1]
    assert parse_prepared(hopped).args_digest == ticket().args_digest


def test_unknown_fields_of_a_ticket_are_left_aside() -> None:
    assert parse_prepared({**ticket().model_dump(mode="json"), "comment": "from a client"}) == ticket()


def test_a_renewed_ticket_differs_in_its_lease_only() -> None:
    later = datetime(2027, 1, 1, tzinfo=UTC)
    renewed = ticket().renewed(later)
    assert renewed.lease_expires_at == later
    assert renewed.model_dump(exclude={"lease_expires_at"}) == ticket().model_dump(exclude={"lease_expires_at"})
    assert renewed.args_digest == ticket().args_digest


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"token": "nonsense"}, "token"),
        ({"token": None}, "token"),
        ({"attempt": 0}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"seq": -1}, "seq"),
        ({"seq": "3"}, "seq"),
        ({"fingerprint": "x"}, "fingerprint"),
        ({"namespace": "n" * 129}, "namespace"),
        ({"args": {"s": "\0"}}, "args.s"),
        ({"vector_clock": {"a": -1}}, "vector_clock.a"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_expires_at": "2026-01-01T00:00:00"}, "lease_expires_at"),
        ({"parent": "x"}, "parent"),
        ({"read_set": [{"domain": "x", "seq": -1}]}, "read_set[0].seq"),
    ],
)
def test_a_malformed_ticket_is_refused_by_its_field(edit: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_prepared({**ticket().model_dump(mode="json"), **edit})
    assert refused.value.field == field


def test_a_ticket_without_its_token_is_refused() -> None:
    bare = ticket().model_dump(mode="json", include=set(WIRE))
    with pytest.raises(InvalidRequest) as refused:
        parse_prepared(bare)
    assert refused.value.reason == "is required"


def test_answers_tell_whether_to_run_the_tool() -> None:
    body = certificate_body(
        intent="i",
        parent=None,
        domain="d",
        seq=1,
        tool="t",
        args=None,
        result={"n": 1.0},
        vector_clock={},
        read_set=[ReadSetEntry(domain="x", seq=1)],
        agent="a",
    )
    fresh, replay = Fresh(ticket()), Replay(EffectCert.from_body(body), 2)
    held = Held(intent="i", attempt=1, blockers=(Blocker("j", 1, "executed"),))
    assert (fresh.replayed, replay.replayed) == (False, True)
    assert Fresh(prepared=ticket()) == fresh
    assert Fresh.model_validate_json(fresh.model_dump_json()) == fresh
    assert Replay.model_validate_json(replay.model_dump_json()) == replay
    assert Held.model_validate_json(held.model_dump_json()) == held
