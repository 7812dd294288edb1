"""The first gate of prepare: what the intent's current attempt says, before anything else is looked at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from effectfence_pg import EffectRequest, Fence, Fresh, IntentFailed, IntentInFlight, IntentMismatch, Replay
from effectfence_pg.calls import Calls
from effectfence_pg.sql import preparing
from effectfence_pg.sql.operation import Operation, Then
from tests.support.rows import one
from tests.support.world import STATES, World


def test_a_new_intent_is_admitted_with_everything_its_holder_needs(world: World) -> None:
    request = world.request(args={"cents": 4900, "to": {"iban": "x"}}, lease_seconds=90.0)
    verdict = world.fence.prepare(request)
    assert isinstance(verdict, Fresh)
    prepared, row = verdict.prepared, world.effect()
    assert (prepared.intent, prepared.domain, prepared.tool, prepared.agent) == (
        "charge:1",
        "of:charge:1",
        "charge",
        "agent-a",
    )
    assert (prepared.namespace, prepared.attempt, prepared.seq) == (world.namespace, 1, 1)
    assert prepared.args == {"cents": 4900, "to": {"iban": "x"}}
    assert prepared.vector_clock.root == {"agent-a": 1}
    assert (row["token"], row["state"], row["seq"]) == (prepared.token, "in_flight", 1)
    assert row["lease_expires_at"] == prepared.lease_expires_at
    left = one(world.engine, "SELECT extract(epoch FROM :until - clock_timestamp())", until=prepared.lease_expires_at)
    assert 80 < left <= 90


def test_a_committed_intent_replays_its_certificate(world: World) -> None:
    certificate = world.commit(result={"receipt": 7})
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate
    assert replay.certificate.result == {"receipt": 7}
    assert replay.attempt == 1


def test_a_committed_intent_replays_even_when_its_read_set_is_stale_by_now(world: World) -> None:
    read = world.fence.observe("stock")
    certificate = world.commit(read_set=read)
    world.commit("restock", domain="stock")
    replay = world.fence.prepare(world.request(read_set=read))
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate


@pytest.mark.parametrize(
    "gate",
    [
        {"parent": "0" * 64},
        {"read_set": [{"domain": "elsewhere", "seq": 99}]},
        {"read_set": [{"domain": "elsewhere", "seq": 0, "settled": False}]},
        {"observes": ["never heard of"]},
        {"expected_seq": 99},
    ],
    ids=["parent", "stale", "unsettled", "observes", "race"],
)
def test_the_intent_gate_comes_before_every_other(world: World, gate: dict[str, Any]) -> None:
    world.commit("replayed")
    world.admit("held")
    world.put("failed", "fenced")
    assert isinstance(world.fence.prepare(world.request("replayed", **gate)), Replay)
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request("held", **gate))
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request("fenced", **gate))
    with pytest.raises(IntentMismatch):
        world.fence.prepare(world.request("held", args={"cents": 1}, **gate))


def test_a_held_intent_says_who_holds_it_since_when_and_for_how_long(world: World) -> None:
    world.admit(agent="agent-b")
    with pytest.raises(IntentInFlight) as refused:
        world.fence.prepare(world.request())
    error = refused.value
    assert (error.intent, error.attempt, error.holder, error.held) == ("charge:1", 1, "agent-b", False)
    assert error.since == world.effect()["admitted_at"]
    assert error.retry_after_seconds is not None
    assert 50 < error.retry_after_seconds <= 60


def test_an_intent_that_ran_and_waits_for_a_decision_is_held_by_its_blockers(world: World) -> None:
    world.hold("base")
    dependent = world.admit("dependent", observes=["base"], agent="agent-b")
    world.fence.commit(dependent, "done", closure="hold")
    with pytest.raises(IntentInFlight) as refused:
        world.fence.prepare(world.request("dependent", observes=["base"]))
    error = refused.value
    assert (error.holder, error.held, error.retry_after_seconds) == ("agent-b", True, None)
    assert [(blocker.intent, blocker.attempt, blocker.state) for blocker in error.blockers] == [("base", 1, "executed")]


@pytest.mark.parametrize("state", ["failed", "aborted", "aborted_in_flight"])
def test_a_fenced_intent_says_why_and_how_to_resolve_it(world: World, state: str) -> None:
    world.put(state)
    with pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request())
    error = refused.value
    assert (error.intent, error.attempt, error.state) == ("charge:1", 1, state.removesuffix("_in_flight"))
    assert error.reason == world.effect()["reason"]
    assert "reconcile" in error.way_out


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "args": ({"args": {"cents": 4901}}, "args"),
    "tool": ({"tool": "refund"}, "tool"),
    "domain": ({"domain": "elsewhere"}, "domain"),
    "declaration": ({"args": {"cents": 4901}, "identity": ("cents",)}, "declaration"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("state", [state for state in STATES if state not in {"released", "superseded"}])
def test_another_action_under_the_same_intent_is_a_mismatch_in_every_state(
    world: World, state: str, other: str
) -> None:
    changed, field = OTHERS[other]
    world.put(state)
    before = world.rows()
    with pytest.raises(IntentMismatch) as refused:
        world.fence.prepare(world.request(**changed))
    error = refused.value
    assert error.field == field
    assert error.stored_args == world.request().fingerprint.args_digest.hex()
    assert error.given_args == world.request(**changed).fingerprint.args_digest.hex()
    assert error.stored_args != error.given_args
    assert world.rows() == before


def test_a_mismatch_does_not_fence_an_expired_lease(world: World) -> None:
    world.put("expired")
    with pytest.raises(IntentMismatch):
        world.fence.prepare(world.request(args={"cents": 1}))
    assert world.state() == "in_flight"
    assert world.moves() == [(None, "in_flight", "admitted")]


def test_a_mismatch_is_no_takeover(world: World) -> None:
    world.admit(on_lease_expiry="takeover")
    world.expire()
    before = world.rows()
    with pytest.raises(IntentMismatch):
        world.fence.prepare(world.request(args={"cents": 1}, on_lease_expiry="takeover"))
    assert world.rows() == before


def test_a_declared_identity_decides_and_the_recorded_args_are_shown(world: World) -> None:
    asked = {"args": {"invoice": 7, "text": "please pay"}, "identity": ("invoice",)}
    certificate = world.commit(**asked)
    again = world.fence.prepare(world.request(args={"invoice": 7, "text": "kindly pay"}, identity=("invoice",)))
    assert isinstance(again, Replay)
    assert again.certificate == certificate
    assert again.certificate.args == {"invoice": 7, "text": "please pay"}
    with pytest.raises(IntentMismatch) as refused:
        world.fence.prepare(world.request(args={"invoice": 8, "text": "please pay"}, identity=("invoice",)))
    assert refused.value.field == "identity"
    assert refused.value.stored_identity != refused.value.given_identity
    assert isinstance(world.fence.prepare(world.request(args=asked["args"])), Replay), (
        "equal in full is the same action"
    )


def test_a_released_intent_runs_as_a_new_attempt_that_may_be_another_action(world: World) -> None:
    old = world.put("released")
    verdict = world.fence.prepare(world.request(tool="refund", args={"cents": 1}, domain="elsewhere", agent="agent-b"))
    assert isinstance(verdict, Fresh)
    new = verdict.prepared
    assert (new.attempt, new.tool, new.domain, new.agent) == (2, "refund", "elsewhere", "agent-b")
    assert new.token != old.token
    assert world.state(attempt=1) == "released"
    certificate = world.fence.commit(new, "done")
    replay = world.fence.prepare(world.request(tool="refund", args={"cents": 1}, domain="elsewhere"))
    assert isinstance(replay, Replay)
    assert (replay.certificate, replay.attempt) == (certificate, 2)


def test_a_superseded_attempt_never_speaks_for_the_intent(world: World) -> None:
    world.put("superseded")
    with pytest.raises(IntentInFlight) as refused:
        world.fence.prepare(world.request())
    assert refused.value.attempt == 2


@pytest.mark.parametrize("before", [None, "released", "expired"])
def test_a_statement_that_ran_twice_recognises_its_own_admission(world: World, before: str | None) -> None:
    """The answer of the first run was lost on the way: the token that the call brought along tells."""
    more: dict[str, Any] = {"on_lease_expiry": "takeover"}
    if before is not None:
        world.put(before, **more)
    call = Calls(world.namespace, None).admission(world.request(expected_seq=world.seq("of:charge:1"), **more))
    operation: Operation[Any] = preparing.prepare(call)
    if before is not None:
        replaced = operation.interpret(world.fence._execute(operation))
        assert isinstance(replaced, Then)
        operation = replaced.operation
    first, second = world.fence._run(operation), world.fence._run(operation)
    assert isinstance(first, Fresh)
    assert isinstance(second, Fresh)
    assert second.prepared == first.prepared
    assert world.seq("of:charge:1") == first.prepared.seq


def test_a_namespace_is_part_of_the_intent(world: World) -> None:
    world.commit()
    other = Fence(world.engine, namespace=world.namespace + "-b")
    assert isinstance(other.prepare(world.request()), Fresh)


def test_a_request_in_the_originals_json_form_is_a_request(world: World) -> None:
    wire = {
        "intent": "i",
        "domain": "d",
        "tool": "t",
        "agent": "a",
        "args": None,
        "read_set": [{"domain": "q", "seq": 0}],
    }
    verdict = world.fence.prepare(wire)
    assert isinstance(verdict, Fresh)
    assert verdict.prepared.args is None
    same = EffectRequest.model_validate(wire)
    with pytest.raises(IntentInFlight):
        world.fence.prepare(same)


def test_times_are_the_databases(world: World) -> None:
    prepared = world.admit()
    now = one(world.engine, "SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    assert world.effect()["admitted_at"] <= now
    assert prepared.lease_expires_at is not None
    assert prepared.lease_expires_at.astimezone(UTC) > now
