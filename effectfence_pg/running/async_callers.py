"""run, fenced and bind to be awaited. See `callers`."""

from __future__ import annotations

import asyncio
import functools
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from effectfence_pg.running.callers import Declares
from effectfence_pg.running.calling import adapted, in_thread, require_declaration
from effectfence_pg.running.course import running
from effectfence_pg.running.runs import Options, Ran, Verify
from effectfence_pg.running.tools import Declaration, Named, Tool
from effectfence_pg.values import ClosureMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from effectfence_pg.running.performing import Performer
    from effectfence_pg.running.proof import NoEffect
    from effectfence_pg.values import EffectRequest

P = ParamSpec("P")
R = TypeVar("R")


class AsyncCallers(Declares):
    """The callers' side of a fence in an event loop. Functions that block are called in worker threads."""

    @functools.cached_property
    @abstractmethod
    def _performer(self) -> Performer:
        """What runs coroutines."""

    async def run(
        self,
        request: EffectRequest | Mapping[str, Any],
        tool: Callable[..., Awaitable[R]],
        *,
        wait_seconds: float | None = None,
        no_effect: NoEffect = (),
        verify: Verify | None = None,
        closure: str = ClosureMode.REQUIRE,
        timeout_seconds: float | None = None,
    ) -> Ran[R]:
        """Call a coroutine function through the fence. See `Fence.run`.

        A caller that is cancelled is let go at once. Before the tool was called nothing has happened; while it runs the
        outcome is unknown; once it has returned its result is recorded all the same. `aclose` waits for that.
        """
        options = Options(wait_seconds, no_effect, verify, closure, timeout_seconds)
        return await self._performer.perform(running(self._desk, request, adapted(tool, awaits=True), options))

    arun = run

    def fenced(
        self,
        _: None = None,
        /,
        *,
        intent: Named = None,
        domain: Named = None,
        identity: tuple[str, ...] | None = None,
        wait_seconds: float | None = None,
        lease_seconds: float | None = None,
        on_lease_expiry: str | None = None,
        no_effect: NoEffect = (),
        verify: Verify | None = None,
        occurrence: int | str | Callable[..., Any] | None = None,
        branch: Named = None,
        agent: Named = None,
    ) -> FencedAsync:
        """Make every call of a function one effect; what comes back is a coroutine function. See `Fence.fenced`."""
        require_declaration(_)
        declaration = Declaration(
            intent=intent,
            domain=domain,
            identity=identity,
            wait_seconds=wait_seconds,
            lease_seconds=lease_seconds,
            on_lease_expiry=on_lease_expiry,
            no_effect=no_effect,
            verify=verify,
            occurrence=occurrence,
            branch=branch,
            agent=agent,
        )
        return FencedAsync(lambda function: self._wrap(self._tool(function, declaration)))

    @overload
    def bind(
        self, function: Callable[P, Coroutine[Any, Any, R]], **changes: Any
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def bind(self, function: Callable[P, R], **changes: Any) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def bind(self, function: Callable[..., Any], **changes: Any) -> Callable[..., Any]:
        """Return the function behind this fence, as a coroutine function. See `Fence.bind`."""
        return self._of_its_object(function, self._wrap(self._bound(function, changes)))

    def _wrap(self, tool: Tool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
            if tool.is_async:
                return lambda _: tool.function(*args, **kwargs)
            return lambda _: asyncio.to_thread(in_thread, tool.function, *args, **kwargs)

        return self._awaited(tool, call, self._performer_perform)

    async def _performer_perform(self, plan: Any) -> Any:
        return await self._performer.perform(plan)


class FencedAsync:
    """The decorator of an `AsyncFence`."""

    def __init__(self, wrap: Callable[[Callable[..., Any]], Any]) -> None:
        self._wrap = wrap

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Wrap the function."""
        return cast("Callable[..., Any]", self._wrap(function))
