"""An effect unheard of past its lease: fenced, or taken over, by the policy of the row that was admitted."""

from __future__ import annotations

from typing import Any

import pytest

from effectfence_pg import (
    Fence,
    FenceConfig,
    Fresh,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    ReadSetStale,
    ReadSetUnsettled,
    Replay,
    UnknownIntent,
    UnknownParent,
)
from tests.support.world import World


def test_an_expired_lease_is_an_unknown_outcome_and_nobody_runs_the_tool_again(world: World) -> None:
    prepared = world.put("expired")
    for _ in range(2):
        with pytest.raises(IntentFailed) as refused:
            world.fence.prepare(world.request(agent="agent-b"))
        assert refused.value.reason == "lease expired, outcome unknown"
        assert refused.value.state == "failed"
    row = world.effect()
    assert (row["state"], row["failure"], row["lease_expires_at"], row["token"]) == (
        "failed",
        "lease_expired",
        None,
        prepared.token,
    )
    assert world.history() == [
        (1, None, "in_flight", "admitted", "agent-a"),
        (1, "in_flight", "failed", "lease_expired", "agent-b"),
    ]


def test_fencing_an_expired_lease_advances_the_domain_once(world: World) -> None:
    world.put("expired", domain="order:1")
    assert world.seq("order:1") == 1
    for _ in range(2):
        with pytest.raises(IntentFailed):
            world.fence.prepare(world.request(domain="order:1"))
        assert world.seq("order:1") == 2


@pytest.mark.parametrize(("admitted", "duplicate"), [("fence", "takeover"), ("takeover", "fence"), ("takeover", None)])
def test_the_admitted_row_decides_and_not_the_duplicate(world: World, admitted: str, duplicate: str | None) -> None:
    world.admit(on_lease_expiry=admitted)
    world.expire()
    again = world.request(on_lease_expiry=duplicate)
    if admitted == "fence":
        with pytest.raises(IntentFailed):
            world.fence.prepare(again)
    else:
        assert isinstance(world.fence.prepare(again), Fresh)


def test_without_a_policy_of_its_own_a_request_has_the_one_of_its_fence(world: World) -> None:
    eager = Fence(
        world.engine, namespace=world.namespace, config=FenceConfig(on_lease_expiry="takeover", lease_seconds=7.0)
    )
    admission = eager.prepare(world.request())
    assert isinstance(admission, Fresh)
    assert (world.effect()["on_lease_expiry"], world.effect()["lease_seconds"]) == ("takeover", 7.0)
    world.expire()
    assert isinstance(world.fence.prepare(world.request()), Fresh)


def test_a_takeover_supersedes_the_old_attempt_and_gives_the_next(world: World) -> None:
    old = world.admit(on_lease_expiry="takeover", domain="order:1")
    world.expire()
    verdict = world.fence.prepare(world.request(domain="order:1", agent="agent-b", on_lease_expiry="takeover"))
    assert isinstance(verdict, Fresh)
    new = verdict.prepared
    assert (new.attempt, new.agent) == (2, "agent-b")
    assert new.token != old.token
    assert new.seq == old.seq + 2, "one number for the end of the old attempt, one for the new attempt"
    assert world.seq("order:1") == new.seq
    assert (world.state(attempt=1), world.state(attempt=2)) == ("superseded", "in_flight")
    assert world.history() == [
        (1, None, "in_flight", "admitted", "agent-a"),
        (1, "in_flight", "superseded", "takeover", "agent-b"),
        (2, None, "in_flight", "admitted", "agent-b"),
    ]


def test_a_takeover_also_follows_an_expiry_that_was_fenced_meanwhile(world: World) -> None:
    world.admit(on_lease_expiry="takeover")
    world.expire()
    assert world.fence.sweep() == 1
    assert world.state() == "failed"
    verdict = world.fence.prepare(world.request(on_lease_expiry="takeover"))
    assert isinstance(verdict, Fresh)
    assert verdict.prepared.attempt == 2
    assert world.moves()[:3] == [
        (None, "in_flight", "admitted"),
        ("in_flight", "failed", "lease_expired"),
        ("failed", "superseded", "takeover"),
    ]


def test_a_failure_that_somebody_reported_is_not_taken_over(world: World) -> None:
    prepared = world.admit(on_lease_expiry="takeover")
    world.fence.abort(prepared, "connection reset after the request was sent")
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request(on_lease_expiry="takeover"))
    assert world.state() == "failed"


def test_an_expired_effect_whose_result_is_on_record_is_not_taken_over(world: World) -> None:
    read = world.fence.observe("stock")
    prepared = world.admit(on_lease_expiry="takeover", read_set=read)
    world.expire()
    world.fence.sweep()
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale):
        world.fence.commit(prepared, "done")
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request(on_lease_expiry="takeover"))
    assert world.effect()["result"] == '"done"'


def test_a_live_lease_is_never_taken_over(world: World) -> None:
    world.admit(on_lease_expiry="takeover")
    before = world.rows()
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request(on_lease_expiry="takeover"))
    assert world.rows() == before


GATES: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "parent": ({"parent": "0" * 64}, UnknownParent),
    "stale": ({"read_set": [{"domain": "stock", "seq": 5}]}, ReadSetStale),
    "unsettled": ({"read_set": [{"domain": "busy", "seq": 1}]}, ReadSetUnsettled),
    "observed unsettled": ({"read_set": [{"domain": "stock", "seq": 0, "settled": False}]}, ReadSetUnsettled),
    "observes nothing": ({"observes": ["nobody"]}, UnknownIntent),
    "observes in flight": ({"observes": ["busy"]}, ReadSetUnsettled),
    "race": ({"expected_seq": 0}, ReadSetStale),
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("swept", [False, True], ids=["expired", "fenced"])
def test_a_takeover_whose_gates_refuse_leaves_every_row_as_it_was(world: World, gate: str, swept: bool) -> None:
    more, refusal = GATES[gate]
    world.admit("busy", domain="busy")
    world.admit(on_lease_expiry="takeover")
    world.expire()
    if swept:
        world.fence.sweep()
    before = world.rows()
    with pytest.raises(refusal):
        world.fence.prepare(world.request(on_lease_expiry="takeover", **more))
    assert world.rows() == before


def test_a_new_attempt_of_a_released_intent_passes_the_gates_as_well(world: World) -> None:
    world.put("released")
    before = world.rows()
    with pytest.raises(ReadSetStale):
        world.fence.prepare(world.request(read_set=[{"domain": "stock", "seq": 5}]))
    assert world.rows() == before


def test_the_own_superseded_attempt_unsettles_nothing_and_the_own_number_counts(world: World) -> None:
    world.admit(on_lease_expiry="takeover", domain="order:1")
    world.expire()
    verdict = world.fence.prepare(world.request(domain="order:1", on_lease_expiry="takeover", expected_seq=1))
    assert isinstance(verdict, Fresh)
    assert verdict.prepared.seq == 3
    certificate = world.fence.commit(verdict.prepared, "done")
    replay = world.fence.prepare(world.request(domain="order:1"))
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate


def test_after_a_takeover_the_old_holder_has_lost_its_lease(world: World) -> None:
    old = world.put("superseded")
    with pytest.raises(LeaseLost):
        world.fence.commit(old, "done")
    with pytest.raises(LeaseLost):
        world.fence.renew(old)
    with pytest.raises(LeaseLost):
        world.fence.abort(old, "gave up")
    assert world.state(attempt=1) == "superseded"
    assert world.state(attempt=2) == "in_flight"


def test_a_verify_policy_without_a_hook_fences_like_the_default(world: World) -> None:
    world.admit(on_lease_expiry="verify")
    world.expire()
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request())
    assert world.state() == "failed"
