"""A database that goes away while a tool runs, and comes back: what ran is on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from effectfence_pg import AsyncFence, DatabaseUnavailable, Fence, FenceConfig
from tests.support.world import World

REFUSALS = 5


class Away:
    """A server that ends every connection, and refuses new ones a few times."""

    def __init__(self, engine: Any) -> None:
        self.refuses = 0
        self.engine = engine
        self._connect = engine.dialect.connect
        engine.dialect.connect = self.connect

    def go(self, refuses: int = REFUSALS) -> None:
        self.refuses = refuses
        # As when the keeper has found out before: the pool has no connection to lose.
        self.engine.dispose()

    def connect(self, *arguments: Any, **options: Any) -> Any:
        if self.refuses:
            self.refuses -= 1
            raise psycopg.OperationalError("connection refused")
        return self._connect(*arguments, **options)


def blocking(world: World, config: FenceConfig, tool: Callable[[Away], Any]) -> Any:
    with Fence(world.engine.url, namespace=world.namespace, config=config) as fence:
        away = Away(fence.engine)
        return fence.run(world.request(), lambda: tool(away)).result


def awaiting(world: World, config: FenceConfig, tool: Callable[[Away], Any]) -> Any:
    async def main() -> Any:
        async with AsyncFence(world.engine.url, namespace=world.namespace, config=config) as fence:
            away = Away(fence.engine.sync_engine)

            async def awaited() -> Any:
                await fence.engine.dispose()
                return tool(away)

            return (await fence.run(world.request(), awaited)).result

    return asyncio.run(main())


EITHER = pytest.mark.parametrize("run", [blocking, awaiting])


@EITHER
def test_what_ran_while_the_database_was_away_is_recorded_when_it_is_back(
    world: World, run: Callable[..., Any]
) -> None:
    def tool(away: Away) -> str:
        away.go()
        return "done"

    aways: list[Away] = []
    assert run(world, FenceConfig(), lambda away: (aways.append(away), tool(away))[1]) == "done"
    assert not aways[0].refuses
    assert world.state("charge:1") == "committed"


@EITHER
def test_a_database_that_stays_away_is_waited_for_until_the_deadline_and_no_longer(
    world: World, run: Callable[..., Any]
) -> None:
    def tool(away: Away) -> str:
        away.go(refuses=1_000_000)
        return "done"

    with pytest.raises(DatabaseUnavailable):
        run(world, FenceConfig(retry_deadline_seconds=0.1), tool)
    assert world.state("charge:1") == "in_flight"


def test_nothing_is_admitted_while_the_database_is_away(world: World) -> None:
    with Fence(world.engine.url, namespace=world.namespace) as fence:
        fence.observe("d")
        away = Away(fence.engine)
        away.go(refuses=1_000_000)
        with pytest.raises(DatabaseUnavailable):
            fence.run(world.request(), lambda: "done")
        away.refuses = 0
    assert not world.rows()["effects"]
