"""I10: nothing holds a transaction, a lock or a pooled connection while a tool runs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from effectfence_pg import AsyncFence, Fence, current_effect
from tests.support.proxy import Proxy
from tests.support.world import World

LIMIT = 30.0


def held(world: World, name: str) -> list[Any]:
    """What the connections of this name hold right now: open transactions, and locks on our tables."""
    with world.engine.connect() as connection:
        return list(
            connection.execute(
                sa.text(
                    "SELECT a.state, l.mode FROM pg_stat_activity a LEFT JOIN pg_locks l "
                    "ON l.pid = a.pid AND l.locktype = 'relation' WHERE a.application_name = :name "
                    "AND (a.state <> 'idle' OR a.xact_start IS NOT NULL OR l.mode IS NOT NULL)"
                ),
                {"name": name},
            )
        )


def url_of(world: World, name: str) -> sa.URL:
    return world.engine.url.update_query_dict({"application_name": name})


def test_i10_a_running_tool_holds_nothing(world: World, namespace: str) -> None:
    engine = sa.create_engine(url_of(world, namespace[:60]), pool_size=1, max_overflow=0, pool_timeout=1)
    fence = Fence(engine, namespace=namespace)

    def tool() -> str:
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        assert held(world, namespace[:60]) == []
        return "done"

    assert fence.run(world.request(), tool).result == "done"
    assert fence.bind(tool, intent="two")() == "done"
    engine.dispose()


def test_i10_a_running_coroutine_holds_nothing(world: World, namespace: str) -> None:
    async def main() -> None:
        engine = create_async_engine(url_of(world, namespace[:60]), pool_size=1, max_overflow=0, pool_timeout=1)
        async with AsyncFence(engine, namespace=namespace) as fence:

            async def tool() -> str:
                assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
                assert await asyncio.to_thread(held, world, namespace[:60]) == []
                return "done"

            assert (await fence.run(world.request(), tool)).result == "done"
        await engine.dispose()

    asyncio.run(main())


def test_i10_nested_tools_need_no_second_connection(world: World) -> None:
    engine = sa.create_engine(world.engine.url, pool_size=1, max_overflow=0, pool_timeout=1)
    fence = Fence(engine, namespace=world.namespace)
    seen: list[str] = []

    @fence.fenced(intent="depth:{depth}")
    def nested(depth: int) -> int:
        seen.append(current_effect().intent)
        below = nested(depth - 1) if depth else 0
        assert current_effect().intent == f"depth:{depth}"
        return below + 1

    assert nested(3) == 4
    assert seen == ["depth:3", "depth:2", "depth:1", "depth:0"]
    with pytest.raises(LookupError):
        current_effect()
    engine.dispose()


def test_f27_tools_outlast_the_servers_patience_with_idle_transactions(world: World) -> None:
    """20 tools at once on one connection, each longer than idle_in_transaction_session_timeout."""
    url = world.engine.url.update_query_dict({"options": "-c idle_in_transaction_session_timeout=100ms"})
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=LIMIT)
    fence = Fence(engine, namespace=world.namespace)
    together = threading.Barrier(20, timeout=LIMIT)

    def tool() -> int:
        # Nobody goes on before all of them run: no connection can be what they wait for.
        together.wait()
        with world.engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_sleep(0.3)"))
        return together.wait()

    def call(number: int) -> Any:
        return fence.run(world.request(f"charge:{number}"), tool).certificate

    with ThreadPoolExecutor(20) as pool:
        certificates = list(pool.map(call, range(20)))
    assert all(certificate.verify() for certificate in certificates)
    engine.dispose()


def test_f28_a_slow_database_does_not_stop_the_event_loop(world: World, proxy: Proxy) -> None:
    """50 calls, nested, on two connections; every answer of the database waits until the loop has gone on meanwhile."""
    ticked = threading.Condition()
    ticks, depth = 0, 3

    def answer_late() -> None:
        with ticked:
            seen = ticks
            if not ticked.wait_for(lambda: ticks >= seen + 2, LIMIT):
                proxy.failures.append("the event loop stood still while the database worked")

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            with ticked:
                ticks += 1
                ticked.notify_all()

    async def main() -> int:
        engine = create_async_engine(proxy.url, pool_size=2, max_overflow=0, pool_timeout=LIMIT)
        ticking = asyncio.create_task(tick())
        async with AsyncFence(engine, namespace=world.namespace) as fence:

            @fence.fenced(intent="call:{number}:{level}")
            async def nested(number: int, level: int) -> int:
                return 1 + (await nested(number, level - 1) if level else 0)

            results = await asyncio.gather(*(nested(number, depth - 1) for number in range(50)))
            proxy.before_turn = None
        await engine.dispose()
        ticking.cancel()
        return sum(results)

    proxy.before_turn = answer_late
    assert asyncio.run(main()) == 50 * depth
