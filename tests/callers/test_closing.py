"""A closed fence is closed: it takes no new call and leaves no connection, and what had begun is recorded all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import AsyncFence, Fence, FenceClosed, FenceConfig
from tests.support.rows import one
from tests.support.until import until
from tests.support.world import World

CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name"


def named(world: World) -> dict[str, Any]:
    """Connections of its own can be told apart by their name."""
    return {"namespace": world.namespace, "config": FenceConfig(application_name=world.namespace[:60])}


def connections(world: World) -> int:
    return one(world.engine, CONNECTIONS, name=world.namespace[:60])


def no_connection_is_left(world: World) -> None:
    """The server forgets a connection a moment after its client has: ask it until then."""
    until(lambda: connections(world) == 0)


CALLS: dict[str, Callable[[Any, World], Any]] = {
    "run": lambda fence, world: fence.run(world.request(), lambda: pytest.fail("called")),
    "arun": lambda fence, world: fence.arun(world.request(), lambda: pytest.fail("called")),
    "fenced": lambda fence, _: fence.fenced(intent="i")(lambda: pytest.fail("called"))(),
    "run_in_transaction": lambda fence, world: fence.run_in_transaction(
        world.request(), lambda _: pytest.fail("called")
    ),
    "prepare": lambda fence, world: fence.prepare(world.request()),
    "commit": lambda fence, world: fence.commit(world.admit(f"held by {id(fence)}"), "done"),
    "status": lambda fence, _: fence.status("charge:1"),
    "settle": lambda fence, _: fence.settle(),
    "compensate": lambda fence, _: fence.compensate((), lambda _: None, agent="a"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_fence_refuses_every_call_and_keeps_no_connection(world: World, name: str) -> None:
    async def called(fence: Any) -> None:
        answer = CALLS[name](fence, world)
        if asyncio.iscoroutine(answer):
            await answer

    async def main(fence: Any, *, used: bool) -> None:
        if used:
            await fence.status("charge:0")
            await fence.aclose()
            await fence.aclose()
        with pytest.raises(FenceClosed) as refused:
            await called(fence)
        assert refused.value.namespace == world.namespace

    world.commit("charge:0")
    fence = Fence(world.engine.url, **named(world))
    fence.status("charge:0")
    assert connections(world) == 1
    fence.close()
    fence.close()
    asyncio.run(main(fence, used=False))
    asyncio.run(main(AsyncFence(world.engine.url, **named(world)), used=True))
    no_connection_is_left(world)
    with pytest.raises(FenceClosed), fence:
        pytest.fail("opened again")


def test_what_had_begun_when_the_fence_was_closed_is_recorded_and_leaves_no_connection(world: World) -> None:
    fence = Fence(world.engine.url, **named(world))

    def tool() -> str:
        fence.close()
        return "done"

    assert fence.run(world.request(), tool).result == "done"
    assert world.fence.status("charge:1").state == "committed"
    no_connection_is_left(world)


def test_an_async_fence_does_the_same(world: World) -> None:
    async def main() -> None:
        fence = AsyncFence(world.engine.url, **named(world))

        async def tool() -> str:
            await fence.aclose()
            return "done"

        assert (await fence.run(world.request(), tool)).result == "done"
        assert world.fence.status("charge:1").state == "committed"
        no_connection_is_left(world)

    asyncio.run(main())


def test_a_ticket_outlives_the_fence_that_gave_it(world: World) -> None:
    with Fence(world.engine.url, **named(world)) as fence:
        verdict = fence.prepare(world.request())
    with pytest.raises(FenceClosed):
        fence.commit(verdict.prepared, "done")  # type: ignore[union-attr]
    world.fence.commit(verdict.prepared, "done")  # type: ignore[union-attr]
    assert world.fence.status("charge:1").state == "committed"
