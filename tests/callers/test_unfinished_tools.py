"""Nothing is on record as done that is still to be done: a coroutine, a generator and a future are no results."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import AsyncFence, Fence, ToolUnfinished
from tests.support.named import steady
from tests.support.rows import one
from tests.support.witness import Witness
from tests.support.world import World


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


@pytest.fixture(autouse=True)
def nothing_is_left_lying() -> Iterator[None]:
    """A coroutine that nobody closed warns when it is collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def makers(ledger: Witness) -> dict[str, Callable[[], Any]]:
    """Plain functions whose effect is still to happen when they return."""

    async def charge() -> str:
        ledger.happened("charge:1")
        return "done"

    def charging() -> Iterator[str]:
        ledger.happened("charge:1")
        yield "done"

    async def acharging() -> AsyncIterator[str]:
        ledger.happened("charge:1")
        yield "done"

    def begun() -> Any:
        steps = charging()
        next(steps)
        return steps

    return {
        "coroutine": lambda: charge(),  # noqa: PLW0108 (it hides that it is one)
        "generator": lambda: charging(),  # noqa: PLW0108
        "async_generator": lambda: acharging(),  # noqa: PLW0108
        "begun generator": begun,
        "future": Future,
    }


NAMES = ["coroutine", "generator", "async_generator", "begun generator", "future"]


@pytest.mark.parametrize("name", NAMES)
def test_work_that_is_still_to_be_done_is_never_certified(world: World, ledger: Witness, name: str) -> None:
    tool = makers(ledger)[name]
    with pytest.raises(ToolUnfinished, match=r"charge:1.* has to be awaited") as refused:
        world.fence.run(world.request(), tool)
    assert (refused.value.intent, refused.value.code) == ("charge:1", "tool_unfinished")
    # The function that made it may have done something: that nothing happened is not proven.
    assert world.fence.status("charge:1").state == "failed"
    for call in (world.fence.fenced(intent="charge:2")(tool), world.fence.bind(tool, intent="charge:3")):
        with pytest.raises(ToolUnfinished):
            call()
    assert [world.fence.status(f"charge:{n}").state for n in (2, 3)] == ["failed", "failed"]
    assert ledger.count() == (3 if name.startswith("begun") else 0)


def test_a_caller_who_knows_that_nothing_happened_can_say_so(world: World, ledger: Witness) -> None:
    with pytest.raises(ToolUnfinished):
        world.fence.run(world.request(), makers(ledger)["coroutine"], no_effect=ToolUnfinished)
    assert world.fence.status("charge:1").state == "released"


@pytest.mark.parametrize("name", ["generator", "async_generator", "future"])
def test_an_event_loop_awaits_what_can_be_and_certifies_nothing_else(world: World, ledger: Witness, name: str) -> None:
    tool = makers(ledger)[name]

    async def awaited() -> Any:
        return tool()

    async def main() -> None:
        async with AsyncFence(world.engine.url, namespace=world.namespace) as fence:
            for n, call in enumerate((tool, awaited)):
                with pytest.raises(ToolUnfinished):
                    await fence.run(world.request(f"charge:{n}"), call)
                with pytest.raises(ToolUnfinished):
                    await world.fence.arun(world.request(f"by arun:{n}"), call)
                assert (await fence.status(f"charge:{n}")).state == "failed"

    asyncio.run(main())
    assert ledger.count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_in_a_transaction_nothing_is_left_of_it(world: World, ledger: Witness, name: str) -> None:
    tool = makers(ledger)[name]

    def function(_connection: Any) -> Any:
        return tool()

    async def awaited(_connection: Any) -> Any:
        made = tool()
        # An event loop would await what a coroutine function returned.
        return makers(ledger)["generator"]() if name in {"coroutine", "future"} else made

    async def main() -> None:
        async with AsyncFence(world.engine.url, namespace=world.namespace) as fence:
            await fence.run_in_transaction(world.request(), awaited)

    with pytest.raises(ToolUnfinished) as refused:
        world.fence.run_in_transaction(world.request(), function)
    assert "rolled back" in refused.value.advice
    assert "operator" not in refused.value.advice
    if name != "coroutine":
        with pytest.raises(ToolUnfinished):
            asyncio.run(main())
    assert all(found == [] for found in world.rows().values())


async def awaited_function(_connection: Any) -> str:
    return "done"


def generator_function(_connection: Any) -> Iterator[str]:
    yield "done"


@pytest.mark.parametrize(
    "function", [3, None, awaited_function, functools.partial(awaited_function), generator_function], ids=steady
)
def test_a_function_that_cannot_run_in_a_transaction_is_refused_before_any_database_work(function: Any) -> None:
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    request = {"intent": "i", "domain": "d", "tool": "t", "agent": "a"}
    with Fence(nobody) as fence, pytest.raises(TypeError):
        fence.run_in_transaction(request, function)
    with Fence(nobody) as fence, pytest.raises(TypeError):
        fence.run(request, function)
    with Fence(nobody) as fence, pytest.raises(TypeError):
        fence.compensate((), 3, agent="a")  # type: ignore[arg-type]


def test_a_compensation_that_is_still_to_be_done_is_fenced(world: World, ledger: Witness) -> None:
    made = makers(ledger)["coroutine"]
    request = world.request(compensation={"tool": "refund", "args": {}}, branch="plan")
    assert world.fence.run(request, lambda: "done", closure="hold").held
    fallen = world.fence.abort_branch("plan", "changed our mind").effects
    with pytest.raises(ToolUnfinished):
        world.fence.compensate(fallen, lambda _: made(), agent="a")
    assert ledger.count() == 0
    failed = "SELECT tool FROM effectfence.effects WHERE namespace = :n AND state = 'failed'"
    assert one(world.engine, failed, n=world.namespace) == "refund"
