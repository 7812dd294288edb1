"""Input that makes no sense: a typed error that names the field, nothing admitted, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    Fence,
    FenceConfig,
    IntentInFlight,
    InvalidRequest,
    PreparedEffect,
    ReadSetUnsettled,
)
from tests.support.world import World

WIRE = {"intent": "charge:1", "domain": "order:1", "tool": "charge", "agent": "agent-a"}


SURROGATE, NUL = "a\ud800", "a\0b"


def names(field: str) -> dict[str, tuple[str, Any]]:
    bad = {"empty": "", "nul": NUL, "surrogate": SURROGATE, "long": "é" * 513, "number": 7, "null": None}
    return {f"{field} {kind}": (field, value) for kind, value in bad.items()}


REQUESTS: dict[str, tuple[str, Any]] = {
    **names("intent"),
    **names("domain"),
    **names("tool"),
    **names("agent"),
    "args nan": ("args.amount", {"args": {"amount": float("nan")}}),
    "args infinity": ("args.deep[0]", {"args": {"deep": [float("-inf")]}}),
    "args nul": ("args.text", {"args": {"text": NUL}}),
    "args surrogate": ("args.text", {"args": {"text": SURROGATE}}),
    "args surrogate key": ("args", {"args": {SURROGATE: 1}}),
    "args object": ("args.when", {"args": {"when": object()}}),
    "args set": ("args.tags", {"args": {"tags": {1, 2}}}),
    "args number key": ("args", {"args": {1: 2}}),
    "args oversized": ("args", {"args": "x" * 2_000}),
    "read set negative": ("read_set[0].seq", {"read_set": [{"domain": "q", "seq": -1}]}),
    "read set huge": ("read_set[0].seq", {"read_set": [{"domain": "q", "seq": 2**63}]}),
    "read set float": ("read_set[0].seq", {"read_set": [{"domain": "q", "seq": 1.0}]}),
    "read set twice": ("read_set[1].domain", {"read_set": [{"domain": "q", "seq": 1}, {"domain": "q", "seq": 1}]}),
    "read set nul": ("read_set[0].domain", {"read_set": [{"domain": NUL, "seq": 1}]}),
    "read set oversized": ("read_set", {"read_set": [{"domain": f"q{n}", "seq": 0} for n in range(5)]}),
    "read set extra": ("read_set[0].more", {"read_set": [{"domain": "q", "seq": 0, "more": 1}]}),
    "expected negative": ("expected_seq", {"expected_seq": -1}),
    "expected contradicts": ("expected_seq", {"expected_seq": 1, "read_set": [{"domain": "order:1", "seq": 2}]}),
    "parent no hash": ("parent", {"parent": "xyz"}),
    "parent upper": ("parent", {"parent": "A" * 64}),
    "clock negative": ("known_clock.a", {"known_clock": {"a": -1}}),
    "clock huge": ("known_clock.a", {"known_clock": {"a": 2**64}}),
    "clock nul": ("known_clock", {"known_clock": {NUL: 1}}),
    "clock oversized": ("known_clock", {"known_clock": {f"a{n}": 1 for n in range(5)}}),
    "own clock at its limit": ("known_clock", {"known_clock": {"agent-a": 2**64 - 1}}),
    "observes oversized": ("observes", {"observes": [f"i{n}" for n in range(5)]}),
    "observes nul": ("observes[0]", {"observes": [NUL]}),
    "identity unknown": ("identity", {"identity": ["nothing"]}),
    "identity empty": ("identity", {"identity": []}),
    "lease zero": ("lease_seconds", {"lease_seconds": 0}),
    "lease nan": ("lease_seconds", {"lease_seconds": float("nan")}),
    "lease endless": ("lease_seconds", {"lease_seconds": 1e9}),
    "policy": ("on_lease_expiry", {"on_lease_expiry": "retry"}),
    "stale policy": ("on_stale", {"on_stale": "ignore"}),
    "unknown field": ("lease", {"lease": 60}),
}


@pytest.fixture
def world(engine: sa.Engine, namespace: str) -> World:
    limits = FenceConfig(max_args_bytes=1_000, max_read_set_entries=4, max_clock_entries=4, max_observed_intents=4)
    return World(engine, namespace, limits)


@pytest.mark.parametrize("bad", REQUESTS)
def test_a_request_that_makes_no_sense_is_refused_by_its_field(world: World, bad: str) -> None:
    field, value = REQUESTS[bad]
    wire = WIRE | (value if isinstance(value, dict) else {field: value})
    with pytest.raises(InvalidRequest) as refused:
        world.fence.prepare(wire)
    assert refused.value.field == field
    assert refused.value.code == "invalid_request"
    assert all(found == [] for found in world.rows().values())


@pytest.mark.parametrize("given", [None, 7, "charge", [], object()])
def test_what_is_no_request_at_all_is_refused(world: World, given: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        world.fence.prepare(given)
    assert refused.value.field == "request"


@pytest.mark.parametrize("missing", WIRE)
def test_a_missing_field_is_named(world: World, missing: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        world.fence.prepare({name: value for name, value in WIRE.items() if name != missing})
    assert refused.value.field == missing


OTHER_VERBS: dict[str, tuple[str, Callable[[Fence, PreparedEffect], object]]] = {
    "observe nul": ("domain", lambda fence, _: fence.observe("a", NUL)),
    "observe long": ("domain", lambda fence, _: fence.observe("x" * 1_025)),
    "current number": ("domain", lambda fence, _: fence.current(7)),  # type: ignore[arg-type]
    "reserve surrogate": ("domain", lambda fence, _: fence.reserve(SURROGATE, 0)),
    "reserve negative": ("expected_seq", lambda fence, _: fence.reserve("d", -1)),
    "reserve float": ("expected_seq", lambda fence, _: fence.reserve("d", 1.0)),  # type: ignore[arg-type]
    "reserve true": ("expected_seq", lambda fence, _: fence.reserve("d", True)),
    "reserve huge": ("expected_seq", lambda fence, _: fence.reserve("d", 2**63)),
    "status empty": ("intent", lambda fence, _: fence.status("")),
    "status nul": ("intent", lambda fence, _: fence.status(NUL)),
    "abort no reason": ("reason", lambda fence, ticket: fence.abort(ticket, "")),
    "abort nul": ("reason", lambda fence, ticket: fence.abort(ticket, NUL)),
    "abort long": ("reason", lambda fence, ticket: fence.abort(ticket, "x" * 20_000)),
    "abort effect": ("effect", lambda fence, ticket: fence.abort(ticket, "no", effect="some")),
    "commit closure": ("closure", lambda fence, ticket: fence.commit(ticket, 1, closure="hope")),
    "reconcile intent": ("intent", lambda fence, _: judge(fence, intent=NUL)),
    "reconcile operator": ("operator", lambda fence, _: judge(fence, operator="x" * 2_000)),
    "reconcile evidence": ("evidence.when", lambda fence, _: judge(fence, evidence={"when": float("nan")})),
    "reconcile evidence size": ("evidence", lambda fence, _: judge(fence, evidence="x" * 2_000)),
    "reconcile attempt": ("attempt", lambda fence, _: judge(fence, attempt=2**31)),
    "reconcile attempt text": ("attempt", lambda fence, _: judge(fence, attempt="1")),
    "clear basis": (
        "basis",
        lambda fence, _: fence.clear("charge:1", attempt=1, basis="", evidence=1, operator="o"),
    ),
}


def judge(fence: Fence, **more: Any) -> object:
    facts = {"intent": "charge:1", "attempt": 1, "outcome": "compensated", "evidence": 1, "operator": "olga"}
    return fence.reconcile(**{**facts, **more})


@pytest.mark.parametrize("bad", OTHER_VERBS)
def test_every_other_verb_names_the_field_and_changes_nothing(world: World, bad: str) -> None:
    field, call = OTHER_VERBS[bad]
    prepared = world.admit()
    before = world.rows()
    with pytest.raises(InvalidRequest) as refused:
        call(world.fence, prepared)
    assert refused.value.field == field
    assert world.rows() == before


@pytest.mark.parametrize("namespace", ["", NUL, SURROGATE, "é" * 65, None])
def test_a_name_that_cannot_be_a_namespace_makes_no_fence(engine: sa.Engine, namespace: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Fence(engine, namespace=namespace)
    assert refused.value.field == "namespace"


def test_a_clock_that_others_drove_to_its_limit_keeps_nobody_from_acting(world: World) -> None:
    """Somebody else's clock says that agent a has used every count: a has none left to tick, and acts all the same."""
    world.commit("poison", agent="agent-b", known_clock={"agent-a": 2**64 - 1})
    certificate = world.commit("victim", agent="agent-a", observes=["poison"])
    assert certificate.vector_clock.root == {"agent-a": 2**64 - 1, "agent-b": 1}
    assert certificate.verify()


def test_a_held_intent_stays_held_whatever_nonsense_comes(world: World) -> None:
    world.admit()
    before = world.rows()
    for bad in ({"args": float("nan")}, {"agent": NUL}, {"expected_seq": -1}):
        with pytest.raises(InvalidRequest):
            world.fence.prepare(WIRE | {"domain": "of:charge:1"} | bad)
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request())
    with pytest.raises(ReadSetUnsettled):
        world.fence.prepare(world.request("other", read_set=[{"domain": "of:charge:1", "seq": 1}]))
    assert world.rows() == before
