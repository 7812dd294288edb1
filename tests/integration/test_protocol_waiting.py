"""prepare with patience: it polls for the holder's outcome, and never runs anything itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    FenceConfig,
    Fresh,
    Held,
    IntentFailed,
    IntentInFlight,
    InvalidRequest,
    ReadSetStale,
    ReadSetUnsettled,
    Replay,
)
from tests.support.world import World

PATIENCE = 20.0


@pytest.fixture
def world(engine: sa.Engine, namespace: str) -> World:
    return World(engine, namespace, FenceConfig(poll_initial_seconds=0.005, poll_max_seconds=0.02))


@contextmanager
def meanwhile(world: World, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Act once the caller has been seen waiting: at its second pause."""
    waits, seen = threading.Event(), []
    original = time.sleep

    def sleep(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 2:
            waits.set()
        original(seconds)

    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", sleep)

    def other() -> None:
        assert waits.wait(PATIENCE)
        act()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        yield
    finally:
        waits.set()
        thread.join()
    assert len(seen) >= 2


def test_a_waiter_replays_what_the_holder_commits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = world.admit()
    with meanwhile(world, lambda: world.fence.commit(prepared, {"receipt": 7}), monkeypatch):
        verdict = world.fence.prepare(world.request(), wait_seconds=PATIENCE)
    assert isinstance(verdict, Replay)
    assert verdict.certificate.result == {"receipt": 7}


def test_a_waiter_is_told_when_the_holder_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = world.admit()
    with (
        meanwhile(world, lambda: world.fence.abort(prepared, "connection reset"), monkeypatch),
        pytest.raises(IntentFailed) as refused,
    ):
        world.fence.prepare(world.request(), wait_seconds=PATIENCE)
    assert refused.value.reason == "connection reset"


def test_a_waiter_runs_when_the_holder_says_that_nothing_happened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = world.admit()
    with meanwhile(world, lambda: world.fence.abort(prepared, "never sent", effect="none"), monkeypatch):
        verdict = world.fence.prepare(world.request(), wait_seconds=PATIENCE)
    assert isinstance(verdict, Fresh)
    assert verdict.prepared.attempt == 2


def test_a_holder_that_dies_while_others_wait_is_an_unknown_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.admit()
    with meanwhile(world, world.expire, monkeypatch), pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request(), wait_seconds=PATIENCE)
    assert refused.value.reason == "lease expired, outcome unknown"


def test_a_wait_that_times_out_says_in_flight(world: World) -> None:
    world.admit()
    before = world.rows()
    started = time.monotonic()
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request(), wait_seconds=0.15)
    assert 0.15 <= time.monotonic() - started < 5
    assert world.rows() == before


def test_without_patience_nothing_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.admit()
    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request())


def test_a_reader_waits_for_its_domain_to_settle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = world.admit("writer", domain="stock")
    read = [{"domain": "stock", "seq": 1}]
    with meanwhile(world, lambda: world.fence.commit(writer, "done"), monkeypatch):
        verdict = world.fence.prepare(world.request(read_set=read), wait_seconds=PATIENCE)
    assert isinstance(verdict, Fresh)
    assert world.edges("charge:1") == {("writer", 1, "read_set")}


def test_a_reader_that_waited_for_a_rollback_is_stale(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = world.admit("writer", domain="stock")
    read = [{"domain": "stock", "seq": 1}]
    with meanwhile(world, lambda: world.fence.abort(writer, "no"), monkeypatch), pytest.raises(ReadSetStale):
        world.fence.prepare(world.request(read_set=read), wait_seconds=PATIENCE)


def test_what_was_read_unsettled_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the domain, the entry stays refused."""
    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(ReadSetUnsettled):
        world.fence.prepare(
            world.request(read_set=[{"domain": "stock", "seq": 0, "settled": False}]), wait_seconds=PATIENCE
        )


def test_commit_waits_for_what_it_observed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"])
    with meanwhile(world, lambda: world.fence.commit(base, "done"), monkeypatch):
        certificate = world.fence.commit(prepared, "done", closure="wait", timeout_seconds=PATIENCE)
    assert not isinstance(certificate, Held)
    assert certificate.verify()


@pytest.mark.parametrize("patience", [float("nan"), -1.0, "1", True])
def test_patience_that_is_no_time_is_refused(world: World, patience: object) -> None:
    before = world.rows()
    with pytest.raises(InvalidRequest) as refused:
        world.fence.prepare(world.request(), wait_seconds=patience)  # type: ignore[arg-type]
    assert refused.value.field == "wait_seconds"
    assert world.rows() == before
    prepared = world.admit()
    with pytest.raises(InvalidRequest) as refused:
        world.fence.commit(prepared, "done", closure="wait", timeout_seconds=patience)  # type: ignore[arg-type]
    assert refused.value.field == "timeout_seconds"
    assert world.state() == "in_flight"


def test_pauses_grow_to_their_limit_and_are_not_in_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class EnoughError(Exception):
        pass

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 5:
            raise EnoughError

    paused: list[float] = []
    world.admit()
    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", sleep)
    with pytest.raises(EnoughError):
        world.fence.prepare(world.request(), wait_seconds=PATIENCE)
    for seconds, most in zip(paused, [0.005, 0.01, 0.02, 0.02, 0.02], strict=True):
        assert most / 2 <= seconds <= most
    assert len(set(paused)) == 5


def test_a_pause_never_passes_the_end_of_the_patience(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    world.admit()
    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", paused.append)
    with pytest.raises(IntentInFlight):
        world.fence.prepare(world.request(), wait_seconds=0.004)
    assert all(seconds <= 0.004 for seconds in paused)
