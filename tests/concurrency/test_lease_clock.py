"""A lease is counted by the database's clock, after every wait (F15)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import Fresh, IntentInFlight
from tests.support.racing import Race, await_waiting, claim_gate, domain_gate, gate, of_kind
from tests.support.rows import one
from tests.support.world import World

LEASE_SECONDS = 0.3


def after_waiting_twice_the_lease(engine: sa.Engine, gate: Any, call: Any) -> tuple[Any, datetime]:
    """The result of a call that waited for a lock, and when it got the lock at the earliest."""
    with gate as holder:
        race = Race([call]).start()
        await_waiting(engine, 1)
        # This is the wait itself and nothing that is hoped to be over by then.
        holder.execute(sa.text("SELECT pg_sleep(:seconds)"), {"seconds": 2 * LEASE_SECONDS})
        released = holder.scalar(sa.text("SELECT clock_timestamp()"))
    (result,) = race.results()
    return result, released


@pytest.fixture(params=[-300.0, 0.0, 300.0], ids=["five minutes slow", "right", "five minutes fast"])
def clock_of_the_application(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How far the application's clock is off, seconds."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + request.param)
    return request.param


@pytest.mark.usefixtures("clock_of_the_application")
@pytest.mark.parametrize("waits_for", ["claim", "domain"])
def test_the_lease_of_a_claim_that_waited_starts_after_the_wait(
    waits_for: str, engine: sa.Engine, world: World
) -> None:
    world.commit("before", domain="order:1")
    gates = {
        "claim": claim_gate(engine, world.namespace, "charge:1"),
        "domain": domain_gate(engine, world.namespace, "order:1"),
    }
    request = world.request(domain="order:1", lease_seconds=LEASE_SECONDS)
    admitted, released = after_waiting_twice_the_lease(engine, gates[waits_for], lambda: world.fence.prepare(request))
    assert isinstance(admitted, Fresh)
    whole = timedelta(seconds=LEASE_SECONDS)
    assert admitted.prepared.lease_expires_at >= released + whole
    row = world.effect()
    assert row["admitted_at"] >= released
    assert row["lease_expires_at"] == admitted.prepared.lease_expires_at
    assert row["lease_expires_at"] - row["admitted_at"] <= whole + timedelta(seconds=1)


def test_a_renewal_that_waited_starts_after_the_wait(engine: sa.Engine, world: World) -> None:
    prepared = world.admit(lease_seconds=LEASE_SECONDS)
    row = "SELECT FROM effectfence.effects WHERE namespace = :namespace FOR UPDATE"
    renewed, released = after_waiting_twice_the_lease(
        engine, gate(engine, row, namespace=world.namespace), lambda: world.fence.renew(prepared)
    )
    assert renewed.lease_expires_at >= released + timedelta(seconds=LEASE_SECONDS)


@pytest.mark.usefixtures("clock_of_the_application")
def test_a_lease_lives_and_ends_by_the_clock_of_the_database(engine: sa.Engine, world: World) -> None:
    world.admit("alive", lease_seconds=60.0)
    world.put("expired", "dead")
    assert world.fence.sweep() == 1
    assert (world.state("alive"), world.state("dead")) == ("in_flight", "failed")
    with pytest.raises(IntentInFlight) as refused:
        world.fence.prepare(world.request("alive", lease_seconds=60.0))
    assert refused.value.retry_after_seconds is not None
    assert 0 < refused.value.retry_after_seconds <= 60.0
    left = "SELECT extract(epoch FROM lease_expires_at - clock_timestamp()) FROM effectfence.effects WHERE namespace = :n AND intent = 'alive'"
    assert 0 < one(engine, left, n=world.namespace) <= 60


def test_of_many_duplicates_over_one_expired_lease_one_takes_over(engine: sa.Engine, world: World) -> None:
    world.put("expired", on_lease_expiry="takeover")
    results = Race([lambda: world.fence.prepare(world.request())] * 8).start().results()
    (winner,) = of_kind(results, Fresh)
    assert winner.prepared.attempt == 2
    assert len(of_kind(results, IntentInFlight)) == 7
    assert (world.state(attempt=1), world.state(attempt=2)) == ("superseded", "in_flight")
