"""Opt-in notifications: who waits hears of an outcome at once. Nobody else pays for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from effectfence_pg import AsyncFence, Fence, FenceConfig, FenceError, IntentFailed, Replay
from effectfence_pg.values import key_of
from tests.support.servers import libpq_url
from tests.support.until import auntil, until
from tests.support.world import World

KEY = key_of("charge:1")
# Without a notification nothing would happen within the limit of any test.
SELDOM = FenceConfig(notify=True, poll_initial_seconds=300.0, poll_max_seconds=600.0, pool_size=2, max_overflow=0)
PATIENCE = 600.0


def url_of(world: World) -> str:
    return world.engine.url.render_as_string(hide_password=False)


def listening(world: World) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN effectfence'"
    with world.engine.connect() as connection:
        return connection.scalar(sa.text(query)) == 1


def decide(world: World, prepared: Any, how: str) -> None:
    """What the holder does, in another process or fence."""
    with Fence(url_of(world), namespace=world.namespace, config=FenceConfig(notify=True)) as holder:
        if how == "commit":
            holder.commit(prepared, "done")
            return
        with pytest.raises(TimeoutError):
            holder.run(world.request("other"), lambda: (_ for _ in ()).throw(TimeoutError()))


def test_a_waiting_call_hears_of_the_outcome(world: World) -> None:
    prepared = world.admit()
    with (
        Fence(url_of(world), namespace=world.namespace, config=SELDOM) as fence,
        ThreadPoolExecutor(3) as pool,
    ):
        answers = [pool.submit(fence.prepare, world.request(), wait_seconds=PATIENCE) for _ in range(3)]
        until(lambda: fence._memory.room.waits(KEY) == 3 and listening(world))
        decide(world, prepared, "commit")
        assert [type(answer.result(30)) for answer in answers] == [Replay] * 3
    assert "effectfence-listener" not in {thread.name for thread in threading.enumerate()}


def test_a_waiting_task_hears_of_the_outcome(world: World) -> None:
    prepared = world.admit()

    async def main() -> list[Any]:
        async with AsyncFence(url_of(world), namespace=world.namespace, config=SELDOM) as fence:
            tasks = [asyncio.create_task(fence.prepare(world.request(), wait_seconds=PATIENCE)) for _ in range(3)]
            await auntil(lambda: fence._memory.room.waits(KEY) == 3)
            while not await asyncio.to_thread(listening, world):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await asyncio.to_thread(decide, world, prepared, "commit")
            return await asyncio.wait_for(asyncio.gather(*tasks), 30)

    assert [type(answer) for answer in asyncio.run(main())] == [Replay] * 3


def test_an_error_of_the_tool_is_heard_of_as_well(world: World) -> None:
    begun, finish = threading.Event(), threading.Event()

    def tool() -> None:
        begun.set()
        assert finish.wait(30)
        raise TimeoutError

    with (
        Fence(url_of(world), namespace=world.namespace, config=SELDOM) as fence,
        ThreadPoolExecutor(2) as pool,
    ):
        holder = pool.submit(fence.run, world.request(), tool)
        assert begun.wait(30)
        waiter = pool.submit(fence.prepare, world.request(), wait_seconds=PATIENCE)
        until(lambda: fence._memory.room.waits(KEY) == 1 and listening(world))
        finish.set()
        with pytest.raises(IntentFailed):
            waiter.result(30)
        with pytest.raises(TimeoutError):
            holder.result(30)


def notices(world: World, config: FenceConfig) -> list[str]:
    """What somebody who listens hears of a commit and of an abort by run."""
    with psycopg.connect(libpq_url(url_of(world)), autocommit=True) as connection:
        connection.execute("LISTEN effectfence")
        with Fence(url_of(world), namespace=world.namespace, config=config) as fence:
            fence.run(world.request("a"), lambda: "done")
            with pytest.raises(ZeroDivisionError):
                fence.run(world.request("b"), lambda: 1 / 0)
            fence.clear("b", attempt=1, basis="holder_dead", evidence="asked", operator="kim")
            fence.renew(fence.prepare(world.request("c")).prepared)  # type: ignore[union-attr]
            fence.abort_intent("c", attempt=1, reason="no")
        connection.execute("NOTIFY effectfence, 'the end'")
        return [notice.payload for notice in connection.notifies(timeout=1, stop_after=5)]


def test_f29_nothing_is_notified_unless_it_was_asked_for(world: World) -> None:
    assert notices(world, FenceConfig()) == ["the end"]


def test_a_notification_names_digests_and_nothing_else(world: World) -> None:
    tenant = key_of(world.namespace).hex()
    expected = [*(f"{tenant}:{key_of(intent).hex()}" for intent in "abbc"), "the end"]
    assert notices(world, FenceConfig(notify=True)) == expected


def test_a_listener_that_cannot_listen_leaves_the_polls(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("effectfence_pg.waiting.listening.LISTEN", "LISTEN 'nothing'")
    config = FenceConfig(notify=True, poll_initial_seconds=0.01, poll_max_seconds=0.02)
    prepared = world.admit()
    with (
        Fence(url_of(world), namespace=world.namespace, config=config) as fence,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(fence.prepare, world.request(), wait_seconds=PATIENCE)
        until(lambda: fence._memory.room.waits(KEY) == 1)
        world.fence.commit(prepared, "done")
        assert isinstance(answer.result(30), Replay)


@pytest.mark.parametrize("payload", ["", "nothing", f"{key_of('another').hex()}:{KEY.hex()}", "x:y"])
def test_what_is_not_for_this_tenant_rings_nothing(payload: str) -> None:
    from effectfence_pg.sql.notices import heard

    assert heard("ours", payload) is None
    assert heard("ours", f"{key_of('ours').hex()}:{KEY.hex()}") == KEY
    assert FenceError.code == "fence_error"
