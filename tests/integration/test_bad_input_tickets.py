"""Tickets that were forged, edited, replayed or somebody else's, and the original's that must pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    EffectCert,
    EffectRequest,
    Fence,
    FenceError,
    Fresh,
    InvalidRequest,
    PreparedEffect,
    Replay,
    TicketMismatch,
    UnknownTicket,
)
from tests.support.world import World

WIRE = {"intent": "charge:1", "domain": "order:1", "tool": "charge", "agent": "agent-a"}


@dataclass(frozen=True)
class Edit:
    field: str
    value: Callable[[PreparedEffect], Any]


EDITS = {
    "intent": Edit("intent", lambda _: "charge:2"),
    "attempt": Edit("attempt", lambda ticket: ticket.attempt + 1),
    "domain": Edit("domain", lambda _: "elsewhere"),
    "seq": Edit("seq", lambda ticket: ticket.seq + 1),
    "tool": Edit("tool", lambda _: "refund"),
    "args": Edit("args", lambda _: {"cents": 1}),
    "fingerprint": Edit("fingerprint", lambda _: "0" * 64),
    "agent": Edit("agent", lambda _: "mallory"),
    "namespace": Edit("namespace", lambda ticket: ticket.namespace + "-b"),
    "branch": Edit("branch", lambda _: "plan-b"),
}


VERBS: dict[str, Callable[[Fence, Any], object]] = {
    "commit": lambda fence, ticket: fence.commit(ticket, "done"),
    "hold": lambda fence, ticket: fence.commit(ticket, "done", closure="hold"),
    "abort": lambda fence, ticket: fence.abort(ticket, "no"),
    "release": lambda fence, ticket: fence.abort(ticket, "no", effect="none"),
    "renew": lambda fence, ticket: fence.renew(ticket),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("rests", [False, True], ids=["plain", "resting"])
def test_an_edited_ticket_moves_nothing_and_is_told_where_it_was_edited(world: World, edit: str, rests: bool) -> None:
    more = {"read_set": world.fence.observe("stock")} if rests else {}
    prepared, change = world.admit(**more), EDITS[edit]
    before = world.rows()
    edited = prepared.model_dump(mode="json") | {change.field: change.value(prepared)}
    for act in VERBS.values():
        with pytest.raises(TicketMismatch) as refused:
            act(world.fence, edited)
        assert edit in refused.value.fields
        assert world.rows() == before
    assert isinstance(world.fence.commit(prepared, "done"), EffectCert), "the holder goes on"


def test_a_forged_token_is_no_ticket(world: World) -> None:
    prepared = world.admit()
    before = world.rows()
    for act in VERBS.values():
        for token in (uuid4(), UUID(int=0)):
            with pytest.raises(UnknownTicket) as refused:
                act(world.fence, prepared.model_copy(update={"token": token}))
            assert (refused.value.intent, refused.value.attempt) == ("charge:1", 1)
    assert world.rows() == before


def test_a_ticket_that_is_none_is_refused_by_its_field(world: World) -> None:
    prepared = world.admit()
    before = world.rows()
    whole = prepared.model_dump(mode="json")
    broken = {
        "token": whole | {"token": "secret"},
        "attempt": whole | {"attempt": 0},
        "seq": {name: value for name, value in whole.items() if name != "seq"},
        "args.text": whole | {"args": {"text": "a\0b"}},
        "fingerprint": whole | {"fingerprint": "xyz"},
        "request": None,
    }
    for act in VERBS.values():
        for field, ticket in broken.items():
            with pytest.raises(InvalidRequest) as refused:
                act(world.fence, ticket)
            assert refused.value.field == field
    assert world.rows() == before


def test_another_tenants_ticket_is_refused_and_says_nothing_about_it(world: World) -> None:
    prepared = world.admit()
    other = Fence(world.engine, namespace=world.namespace + "-b")
    before = world.rows()
    for act in VERBS.values():
        with pytest.raises(TicketMismatch) as refused:
            act(other, prepared)
        assert refused.value.fields == ("namespace",)
        with pytest.raises(UnknownTicket):
            act(other, prepared.model_copy(update={"namespace": other.namespace}))
    assert world.rows() == before


def test_a_replayed_ticket_of_a_decided_attempt_moves_nothing(world: World) -> None:
    released = world.put("released")
    new = world.admit()
    certificate = world.fence.commit(new, "done")
    before = world.rows()
    for verb in ("abort", "release", "renew"):
        with pytest.raises(FenceError):
            VERBS[verb](world.fence, new)
    assert world.fence.commit(new, "done") == certificate
    with pytest.raises(FenceError):
        world.fence.renew(released)
    assert world.rows() == before


def test_a_request_is_captured_when_it_is_made(world: World) -> None:
    args = {"cents": 4900, "to": ["a"]}
    request = world.request(args=args)
    args["to"].append("b")
    request.args["cents"] = 1
    verdict = world.fence.prepare(request)
    assert isinstance(verdict, Fresh)
    assert verdict.prepared.args == {"cents": 4900, "to": ["a"]}
    verdict.prepared.args["cents"] = 2
    certificate = world.fence.commit(verdict.prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert certificate.args == {"cents": 4900, "to": ["a"]}


def test_the_originals_wire_form_passes_verbatim_through_json(world: World) -> None:
    """A client of the original knows nothing of our fields and hands back what it was given."""
    arguments = WIRE | {"args": None, "read_set": [], "parent": None, "known_clock": {}}
    verdict = world.fence.prepare(json.loads(json.dumps(arguments)))
    assert isinstance(verdict, Fresh)
    ticket = json.loads(json.dumps(verdict.prepared.model_dump(mode="json")))
    assert set(ticket) >= {
        "intent",
        "parent",
        "domain",
        "seq",
        "tool",
        "args",
        "vector_clock",
        "read_set",
        "agent",
        "token",
    }
    certificate = world.fence.commit(ticket, {"any": ["json"]})
    assert isinstance(certificate, EffectCert)
    assert list(certificate.wire()) == [
        "intent",
        "parent",
        "domain",
        "seq",
        "tool",
        "args",
        "result",
        "vector_clock",
        "read_set",
        "agent",
        "hash",
    ]
    replay = world.fence.prepare(arguments)
    assert isinstance(replay, Replay)
    again = EffectCert.model_validate(json.loads(json.dumps(replay.certificate.wire())))
    assert again.verify()


def through_javascript(value: Any) -> Any:
    """JSON.parse and JSON.stringify: every number is a double, and a whole one is written without a point."""
    if isinstance(value, dict):
        return {key: through_javascript(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [through_javascript(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_a_ticket_that_went_through_javascript_is_the_same_ticket(world: World) -> None:
    prepared = world.admit(args={"amount": 49.0, "delta": -0.0, "rate": 0.5}, lease_seconds=90.0)
    ticket = through_javascript(json.loads(prepared.model_dump_json()))
    assert ticket["lease_seconds"] == 90
    assert isinstance(ticket["lease_seconds"], int)
    world.fence.renew(ticket)
    certificate = world.fence.commit(ticket, "done")
    assert isinstance(certificate, EffectCert)
    assert certificate.args == {"amount": 49.0, "delta": -0.0, "rate": 0.5}
    assert certificate.verify()


def test_every_certificate_of_the_original_is_minted_here_byte_for_byte(engine: sa.Engine, namespace: str) -> None:
    """Those whose clock is one tick of one agent: what the fence itself would have made of the same request."""
    path = Path(__file__).parents[1] / "vectors" / "certificates.jsonl"
    seen = 0
    for number, line in enumerate(path.read_text().splitlines()):
        vector = json.loads(line)
        facts, tested = vector["input"], World(engine, f"{namespace}-{number}")
        simple = facts["vector_clock"] == {facts["agent"]: 1} and facts["seq"] == 1 and not facts["read_set"]
        args, result = json.loads(facts["args_json"]), json.loads(facts["result_json"])
        if (
            not simple
            or facts["parent"]
            or "\0" in json.dumps(args, ensure_ascii=False)
            or "\\u0000" in facts["args_json"]
        ):
            continue
        seen += 1
        request = EffectRequest(**{name: facts[name] for name in ("intent", "domain", "tool", "agent")}, args=args)
        certificate = tested.fence.commit(tested.admit_request(request), result)
        assert certificate.hash == vector["hash"], vector["id"]
        if seen == 40:
            break
    assert seen >= 10
