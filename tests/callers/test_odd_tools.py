"""Whatever a tool is, raises or returns: it has run when its effect is on record, and its outcome is recorded."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import AsyncFence, InvalidRequest, UnknownIntent
from effectfence_pg.running.proof import classify
from effectfence_pg.running.tools import Tool
from tests.support.named import steady
from tests.support.witness import Witness
from tests.support.world import World


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


async def awaited() -> str:
    return "done"


class Awaited:
    async def __call__(self) -> str:
        return "done"


def generated() -> Iterator[str]:
    yield "done"


def takes_two(order: str, cents: int) -> None:
    raise AssertionError((order, cents))


def takes_a_name(*, order: str) -> None:
    raise AssertionError(order)


@pytest.mark.parametrize(
    "tool",
    [awaited, Awaited(), functools.partial(awaited), generated, takes_two, takes_a_name, "no function", None],
    ids=steady,
)
def test_what_cannot_be_run_here_is_refused_before_anything_is_admitted(world: World, tool: Any) -> None:
    with pytest.raises(TypeError):
        world.fence.run(world.request(), tool)
    with pytest.raises(UnknownIntent):
        world.fence.status("charge:1")


def test_a_function_that_returns_something_to_be_awaited_is_not_taken_for_done(world: World) -> None:
    with pytest.raises(TypeError, match="awaited"):
        world.fence.run(world.request(), lambda: awaited())  # noqa: PLW0108 (it hides that it is one)
    assert world.fence.status("charge:1").state == "failed"


def test_objects_and_partials_are_tools(world: World, ledger: Witness) -> None:
    class Charges:
        async def __call__(self, order: str) -> str:
            await asyncio.sleep(0)
            ledger.happened(order)
            return f"charged {order}"

    def charge(order: str, cents: int, currency: str = "eur") -> str:
        ledger.happened(order)
        return f"{order} {cents} {currency}"

    fenced: Callable[..., Any] = world.fence.fenced(intent="object:{order}")(Charges())
    assert inspect.iscoroutinefunction(fenced)
    assert asyncio.run(fenced("1")) == asyncio.run(fenced("1")) == "charged 1"

    async def main() -> None:
        url = world.engine.url.render_as_string(hide_password=False)
        async with AsyncFence(url, namespace=world.namespace) as fence:
            wrapped: Callable[..., Any] = fence.fenced(intent="hidden")(lambda: Charges()("2"))
            assert await wrapped() == await wrapped() == "charged 2"

    asyncio.run(main())
    # What is preset says which action it is, too.
    for order, currency in (("a", "eur"), ("b", "eur"), ("b", "usd"), ("b", "usd")):
        tool = world.fence.fenced()(functools.partial(charge, order, currency=currency))
        assert tool(cents=7) == f"{order} 7 {currency}"
    assert [line["intent"] for line in ledger.lines()] == ["1", "2", "a", "b", "b"]


def test_two_lambdas_are_never_taken_for_each_other(world: World) -> None:
    with pytest.raises(TypeError, match="intent="):
        world.fence.fenced()(lambda order: order)
    assert world.fence.fenced(intent="named:{order}")(lambda order: order)("7") == "7"


def test_a_fenced_method_of_an_object_can_be_bound_to_another_fence(world: World, ledger: Witness) -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @world.fence.fenced(intent=lambda self, order: f"{self.name}:{order}")
        def charge(self, order: str) -> str:
            ledger.happened(order)
            return f"{self.name} charged {order}"

    other = World(world.engine, f"{world.namespace}-other")
    charge = other.fence.bind(Shop("north").charge)
    assert charge("7") == charge("7") == Shop("north").charge("7") == "north charged 7"
    assert ledger.count() == 2


def test_a_thread_that_raises_stop_iteration_does_not_leave_its_caller_waiting(world: World) -> None:
    async def main() -> None:
        url = world.engine.url.render_as_string(hide_password=False)
        async with AsyncFence(url, namespace=world.namespace) as fence:

            @fence.fenced(intent="empty")
            def tool() -> str:
                return next(iter(()))

            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.wait_for(tool(), 20)
            assert (await fence.status("empty")).state == "failed"

    asyncio.run(main())


class NoAnswerError(Exception):
    """As httpx's errors are about their request: a property that raises."""

    @property
    def response(self) -> object:
        raise RuntimeError("there is none")

    reason = response


class NoArgsError(Exception):
    args = None  # type: ignore[assignment]


class LongNameError(Exception):
    __qualname__ = "E" * 100_000


@pytest.mark.parametrize("error", [NoAnswerError(), NoArgsError(), LongNameError(), SystemExit(1), KeyboardInterrupt()])
@pytest.mark.parametrize("no_effect", [(), ("no type",), None], ids=repr)
def test_an_error_that_cannot_be_read_leaves_the_outcome_unknown_and_is_raised(
    world: World, error: BaseException, no_effect: Any
) -> None:
    def tool() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        world.fence.run(world.request(), tool, no_effect=no_effect)
    assert raised.value is error
    assert world.fence.status("charge:1").state == "failed"
    assert classify(error) == "other"


class Unreadable(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("the connection behind it is closed")


class UnreadableList(list[int]):
    def __iter__(self) -> Any:
        raise RuntimeError("the connection behind it is closed")


@pytest.mark.parametrize("result", [Unreadable(a=1), UnreadableList([1]), {"deep": [Unreadable()]}], ids=repr)
def test_f21_a_result_that_fails_when_it_is_read_completes_the_intent_all_the_same(world: World, result: Any) -> None:
    assert world.fence.run(world.request(), lambda: result).result is result
    assert world.fence.fenced(intent="fenced")(lambda: result)() is result
    assert world.fence.status("charge:1").state == world.fence.status("fenced").state == "committed"
    with pytest.raises(InvalidRequest, match="RuntimeError"):
        world.fence.prepare(world.request("more").model_dump() | {"args": {"a": result}})


def test_f17_an_interrupt_while_the_result_is_written_down_is_completed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[object] = []

    def interrupted(_tool: Tool, result: object) -> object:
        encoded.append(result)
        if len(encoded) == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Tool, "_encoded", interrupted)
    tool = world.fence.fenced(intent="charge:1")(lambda: "done")
    with pytest.raises(KeyboardInterrupt):
        tool()
    assert world.fence.status("charge:1").state == "committed"
    assert tool() == "done"


@pytest.mark.parametrize("told", [{"closure": "nope"}, {"timeout_seconds": -1}, {"wait_seconds": "soon"}], ids=repr)
def test_what_a_run_is_told_is_checked_before_its_tool_is_called(
    world: World, ledger: Witness, told: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        world.fence.run(world.request(), lambda: ledger.happened("charge:1"), **told)
    assert refused.value.field in told
    assert not ledger.lines()
    with pytest.raises(UnknownIntent):
        world.fence.status("charge:1")
