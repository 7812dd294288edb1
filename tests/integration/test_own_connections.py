"""The connections of a fence that made its own engine: bounded, shared with whoever uses the engine, and closed in the end."""

from __future__ import annotations

import ctypes
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.util.queue import Empty, Full

from effectfence_pg import Fence, FenceConfig
from effectfence_pg.engines import Idle
from effectfence_pg.migrate import downgrade, upgrade
from tests.support.racing import Race, await_waiting, domain_gate
from tests.support.until import until
from tests.support.world import World


@pytest.fixture
def name() -> str:
    return f"own-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fence(engine: sa.Engine, world: World, name: str) -> Iterator[Fence]:
    config = FenceConfig(pool_size=1, max_overflow=0, application_name=name)
    with Fence(engine.url, namespace=world.namespace, config=config) as made:
        yield made


def open_connections(engine: sa.Engine, name: str) -> int:
    with engine.connect() as connection:
        asked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
        return connection.scalar(asked, {"name": name}) or 0


def test_whoever_uses_the_engine_shares_the_one_connection(
    fence: Fence, engine: sa.Engine, world: World, name: str
) -> None:
    for number in range(3):
        prepared = fence.prepare(world.request(f"charge:{number}")).prepared
        with fence.engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT 1")) == 1
        fence.commit(prepared, "done")
    assert open_connections(engine, name) == 1


def test_an_engine_that_is_disposed_during_a_call_leaves_nothing_open(
    fence: Fence, engine: sa.Engine, world: World, name: str
) -> None:
    world.commit("earlier", domain="order:1")
    with domain_gate(engine, world.namespace, "order:1"):
        race = Race([lambda: fence.prepare(world.request("waits", domain="order:1"))]).start()
        await_waiting(engine, 1)
        fence.engine.dispose()
        assert open_connections(engine, name) == 1
    (admitted,) = race.results()
    assert admitted.prepared.seq == 2
    until(lambda: open_connections(engine, name) == 0)
    # And the fence works on.
    assert fence.commit(admitted.prepared, "done").result == "done"
    fence.close()
    until(lambda: open_connections(engine, name) == 0)


def test_what_was_prepared_for_another_schema_is_prepared_anew_on_every_connection(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    config = FenceConfig(pool_size=6, max_overflow=0, prepare_threshold=0)
    with Fence(migrated_database, namespace="shop", config=config) as fence:
        world = World(engine, "shop")

        def on_six_connections(number: str) -> None:
            world.commit(f"{number}-first", domain="order:1")
            asked = [world.request(f"{number}-{at}", domain="order:1") for at in range(6)]
            with domain_gate(engine, "shop", "order:1"):
                race = Race([lambda one=one: fence.prepare(one) for one in asked]).start()
                await_waiting(engine, 6)
            assert sorted(verdict.prepared.seq for verdict in race.results()) == [2, 3, 4, 5, 6, 7]

        on_six_connections("one")
        downgrade(migrated_database, drop_certificates=True)
        upgrade(migrated_database)
        on_six_connections("two")
    engine.dispose()


def threads(count: int, body: Callable[[], Any]) -> list[Future[Any]]:
    with ThreadPoolExecutor(count) as pool:
        return [pool.submit(body) for _ in range(count)]


def test_who_waits_for_the_one_connection_gets_it_however_busy_the_others_are(engine: sa.Engine, world: World) -> None:
    config = FenceConfig(pool_size=1, max_overflow=0, retry_deadline_seconds=0.5)
    replayed = world.request("charge:1")
    world.commit("charge:1")
    with Fence(engine.url, namespace=world.namespace, config=config) as fence:
        fence.prepare(replayed)
        ends = time.monotonic() + 1.5

        def replay() -> int:
            count = 0
            while time.monotonic() < ends:
                assert fence.prepare(replayed).replayed
                count += 1
            return count

        counts = [future.result() for future in threads(6, replay)]
        assert min(counts) * 10 > max(counts)
        assert fence.engine.pool.checkedout() == 0


@pytest.mark.parametrize("ended_by", ["dispose", "close"])
def test_who_waits_for_a_connection_when_the_engine_is_disposed_gets_one(
    fence: Fence, engine: sa.Engine, world: World, name: str, ended_by: str
) -> None:
    tickets = [
        fence.prepare(world.request(f"charge:{number}", domain=f"order:{number}")).prepared for number in range(3)
    ]
    lent = fence.engine.pool.borrow()
    race = Race([lambda ticket=ticket: fence.commit(ticket, "done") for ticket in tickets]).start()
    until(lambda: len(fence.engine.pool._pool._line) == 3)
    pool = fence.engine.pool
    if ended_by == "dispose":
        fence.engine.dispose()
    else:
        fence.close()
    pool.give_back(lent)
    assert [certificate.result for certificate in race.results()] == ["done"] * 3
    until(lambda: open_connections(engine, name) == 0)


def test_a_pool_that_is_disposed_can_be_used_on_and_keeps_to_its_size(
    fence: Fence, engine: sa.Engine, world: World, name: str
) -> None:
    world.commit("charge:1")
    for _ in range(3):
        fence.engine.pool.dispose()
        for _ in range(3):
            assert fence.prepare(world.request("charge:1")).replayed
        assert open_connections(engine, name) <= 1


def test_what_is_still_lent_by_the_engine_when_it_is_disposed_is_closed_when_it_comes_back(
    fence: Fence, engine: sa.Engine, name: str
) -> None:
    connection = fence.engine.connect()
    fence.engine.dispose()
    assert open_connections(engine, name) == 1
    connection.close()
    until(lambda: open_connections(engine, name) == 0)


def test_room_that_a_failed_connection_leaves_goes_to_who_waits_for_one(
    fence: Fence, engine: sa.Engine, world: World
) -> None:
    world.commit("charge:1")
    fence.prepare(world.request("charge:1"))
    fence.engine.dispose()
    pool = fence.engine.pool
    refusals: list[str] = []

    def connect(*_: object) -> Any:
        if refusals:
            return psycopg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
        until(lambda: len(pool._pool._line) == 1)
        refusals.append("the first one")
        raise psycopg.OperationalError(refusals[0])

    pool._creator = connect
    began = time.monotonic()
    answers = [
        future.exception() or future.result() for future in threads(2, lambda: fence.prepare(world.request("charge:1")))
    ]
    assert sorted(type(answer).__name__ for answer in answers) == ["DatabaseUnavailable", "Replay"]
    # Not only when the patience was over.
    assert time.monotonic() - began < fence.config.retry_deadline_seconds / 2


def test_what_is_handed_to_somebody_who_is_interrupted_goes_to_the_next() -> None:
    class Interrupted(BaseException):
        pass

    idle = Idle(1)
    interrupted: list[BaseException] = []

    def first() -> None:
        try:
            idle.get(True, 20)
        except Interrupted as error:
            interrupted.append(error)

    one = threading.Thread(target=first)
    one.start()
    until(lambda: len(idle._line) == 1)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(idle.get, True, 20)
        until(lambda: len(idle._line) == 2)
        # It is raised when the thread runs again: when it has been given what it waited for.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(one.ident or 0), ctypes.py_object(Interrupted))
        idle.put("a connection")
        assert other.result(timeout=10) == "a connection"
    one.join(timeout=10)
    assert interrupted
    assert not idle._line


def test_nobody_waits_longer_than_was_said_and_nothing_is_kept_for_who_has_left() -> None:
    idle = Idle(1)
    with pytest.raises(Empty):
        idle.get(True, 0.01)
    with pytest.raises(Empty):
        idle.get(False)
    idle.put("a connection")
    with pytest.raises(Full):
        idle.put("one too many")
    assert idle.get(True, 0.01) == "a connection"
