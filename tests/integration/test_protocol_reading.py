"""sweep, status, stats, observe and current: the verbs of those who look, and of those who clean up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from effectfence_pg import (
    ClosurePending,
    DomainRace,
    Fence,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    ReadSetEntry,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownIntent,
    UnknownParent,
)
from tests.support.world import STATES, World


def test_looking_creates_nothing(world: World) -> None:
    assert world.fence.current("order:1") == 0
    assert world.fence.observe("order:1", "order:2") == (
        ReadSetEntry(domain="order:1", seq=0),
        ReadSetEntry(domain="order:2", seq=0),
    )
    assert world.fence.observe() == ()
    with pytest.raises(UnknownIntent):
        world.fence.status("charge:1")
    assert world.fence.sweep() == 0
    assert all(found == [] for found in world.rows().values())


def test_observe_answers_in_the_order_asked_and_as_often_as_asked(world: World) -> None:
    world.commit("a", domain="a")
    world.commit("b", domain="b")
    world.commit("b2", domain="b")
    assert [(entry.domain, entry.seq) for entry in world.fence.observe("b", "a", "none", "b")] == [
        ("b", 2),
        ("a", 1),
        ("none", 0),
        ("b", 2),
    ]
    assert world.fence.current("b") == 2


@pytest.mark.parametrize("state", [state for state in STATES if state != "expired"])
def test_status_tells_where_the_current_attempt_stands(world: World, state: str) -> None:
    prepared = world.put(state, domain="order:1", agent="agent-b")
    row, status = world.effect(), world.status()
    current = 2 if state == "superseded" else 1
    assert (status.intent, status.namespace, status.attempt) == ("charge:1", world.namespace, current)
    assert status.state == row["state"]
    assert (status.domain, status.tool, status.agent, status.seq) == ("order:1", "charge", "agent-b", row["seq"])
    assert (status.admitted_at, status.lease_expires_at) == (row["admitted_at"], row["lease_expires_at"])
    assert (status.reason, status.failure) == (row["reason"], row["failure"])
    assert status.lease_live is (state in {"in_flight", "aborted_in_flight", "superseded"})
    assert status.has_result is (state in {"executed", "committed", "aborted"})
    assert status.result == ("done" if status.has_result else None)
    assert (status.certificate is not None) is (state == "committed")
    assert prepared.intent == status.intent


def test_status_tells_an_expired_lease_from_a_live_one_without_fencing_it(world: World) -> None:
    world.put("expired")
    before = world.rows()
    assert (world.status().state, world.status().lease_live) == ("in_flight", False)
    assert world.rows() == before


def test_status_tells_what_a_held_effect_waits_for(world: World) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"])
    with pytest.raises(ClosurePending):
        world.fence.commit(prepared, "done")
    assert [(b.intent, b.attempt, b.state) for b in world.status().blockers] == [("base", 1, "executed")]
    world.fence.commit(base, "done")
    assert world.status().blockers == ()


def test_a_sweep_fences_every_expired_lease_and_nothing_else(world: World) -> None:
    for state in STATES:
        world.put(state, state)
    before = {state: world.state(state) for state in STATES}
    assert world.fence.sweep() == 1
    assert {state: world.state(state) for state in STATES} == before | {"expired": "failed"}
    assert world.history("expired")[-1] == (1, "in_flight", "failed", "lease_expired", "effectfence")
    assert world.effect("expired")["reason"] == "lease expired, outcome unknown"


def test_a_sweep_is_idempotent(world: World) -> None:
    for n in range(3):
        world.put("expired", f"charge:{n}", domain="order:1")
    assert world.fence.sweep() == 3
    assert world.seq("order:1") == 6
    before = world.rows()
    assert world.fence.sweep() == 0
    assert world.rows() == before


def test_sweeps_at_once_fence_each_lease_once(world: World) -> None:
    for n in range(12):
        world.put("expired", f"charge:{n}", domain=f"order:{n % 2}")
    with ThreadPoolExecutor(4) as pool:
        swept = list(pool.map(lambda _: world.fence.sweep(), range(4)))
    assert sum(swept) == 12
    assert all(world.moves(f"charge:{n}")[1:] == [("in_flight", "failed", "lease_expired")] for n in range(12))
    assert [world.seq("order:0"), world.seq("order:1")] == [12, 12]


def test_a_sweep_takes_more_than_one_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("effectfence_pg.plans.BATCH", 2)
    for n in range(5):
        world.put("expired", f"charge:{n}")
    assert world.fence.sweep() == 5


def test_a_sweep_of_an_effect_takes_its_dependents_with_it(world: World) -> None:
    world.hold("base")
    world.admit("reader", observes=["base"])
    world.edit("base", state="in_flight", result=None, lease_expires_at="2001-01-01T00:00:00Z")
    assert world.fence.sweep() == 1
    assert (world.state("base"), world.state("reader")) == ("failed", "aborted")


def test_stats_count_what_this_fence_saw_by_cause(world: World) -> None:
    fence = Fence(world.engine, namespace=world.namespace)
    world.commit("replayed")
    world.admit("held", domain="busy")
    world.put("failed", "fenced")
    refusals = [
        (world.request("held", domain="busy"), IntentInFlight),
        (world.request("held", domain="busy"), IntentInFlight),
        (world.request("fenced"), IntentFailed),
        (world.request("held", args={}), IntentMismatch),
        (world.request("r1", read_set=[{"domain": "stock", "seq": 4}]), ReadSetStale),
        (world.request("r2", read_set=[{"domain": "busy", "seq": 1}]), ReadSetUnsettled),
        (world.request("r3", domain="busy", expected_seq=0), DomainRace),
        (world.request("r4", parent="0" * 64), UnknownParent),
    ]
    for request, refusal in refusals:
        with pytest.raises(refusal):
            fence.prepare(request)
    fence.prepare(world.request("replayed"))
    fence.prepare(world.request("replayed"))
    fence.prepare(world.request("new"))
    stats = fence.stats()
    assert (stats.admitted, stats.replayed, stats.total_attempts, stats.prevented) == (1, 2, 11, 10)
    assert stats.refused == {
        "intent_in_flight": 2,
        "intent_failed": 1,
        "intent_mismatch": 1,
        "read_set_stale": 1,
        "read_set_unsettled": 1,
        "domain_race": 1,
        "unknown_parent": 1,
    }
    assert stats.wire()["refused"] == {"stale_read_set": 2, "domain_race": 1, "in_flight": 2, "prior_failure": 1}


def test_a_fence_closes_only_the_engine_it_made(database_url: str, world: World) -> None:
    with Fence(database_url, namespace=world.namespace) as own:
        own.current("order:1")
        assert own.engine.pool.checkedin() == 1
    assert own.engine.pool.checkedin() == 0
    world.fence.close()
    assert world.engine.pool.checkedin() > 0, "the engine that was given stays as it was"
