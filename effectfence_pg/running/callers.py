"""run, fenced and bind: what people put around their tools. What a run does stands in `running`."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from types import MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from effectfence_pg.running.calling import adapted, code_of, require_declaration
from effectfence_pg.running.course import running
from effectfence_pg.running.performing import Performer, perform
from effectfence_pg.running.runs import Desk, Options, Ran, Verify
from effectfence_pg.running.tools import DECLARED, Declaration, Named, Tool
from effectfence_pg.values import ClosureMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from effectfence_pg.running.proof import NoEffect
    from effectfence_pg.steps import Steps
    from effectfence_pg.values import EffectRequest

P = ParamSpec("P")
R = TypeVar("R")


class Declares(ABC):
    """The declaration of a tool, the same on every fence."""

    _desk: Desk

    def _tool(self, function: Callable[..., Any], declaration: Declaration) -> Tool:
        return Tool(function, declaration)

    def _bound(self, function: Callable[..., Any], changes: dict[str, Any]) -> Tool:
        known: Tool | None = getattr(function, DECLARED, None)
        if known is None:
            return Tool(function, Declaration().changed(changes))
        return Tool(known.function, known.declaration.changed(changes))

    @staticmethod
    def _of_its_object(function: Callable[..., Any], wrapped: Callable[..., Any]) -> Any:
        """The method of an object stays one: its declaration is that of the function, which takes the object."""
        if inspect.ismethod(function) and hasattr(function, DECLARED):
            return MethodType(wrapped, function.__self__)
        return wrapped

    def _request(self, tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EffectRequest:
        return tool.request(self._desk.calls.namespace, args, kwargs)

    @staticmethod
    def _value(tool: Tool, ran: Ran[Any]) -> Any:
        return tool.decoded(ran.certificate) if ran.replayed else ran.result

    def _wrapped(self, tool: Tool, wrapper: Callable[..., Any]) -> Any:
        functools.update_wrapper(wrapper, code_of(tool.function))
        # Partials and objects that can be called have no name of their own.
        wrapper.__name__ = tool.name.rpartition(".")[2]
        wrapper.__dict__["__wrapped__"] = tool.function
        setattr(wrapper, DECLARED, tool)
        return wrapper

    def _awaited(self, tool: Tool, call: Callable[..., Callable[[Any], Any]], arun: Callable[..., Any]) -> Any:
        async def fenced(*args: Any, **kwargs: Any) -> Any:
            request = self._request(tool, args, kwargs)
            return self._value(tool, await arun(running(self._desk, request, call(*args, **kwargs), tool.options)))

        return self._wrapped(tool, fenced)


class Callers(Declares):
    """The callers' side of a fence that blocks. Its coroutines take their steps in worker threads."""

    @abstractmethod
    def _drive(self, running: Steps[Any]) -> Any:
        """Take steps on the database, here."""

    @functools.cached_property
    @abstractmethod
    def _performer(self) -> Performer:
        """What runs coroutines."""

    def run(
        self,
        request: EffectRequest | Mapping[str, Any],
        tool: Callable[..., R],
        *,
        wait_seconds: float | None = None,
        no_effect: NoEffect = (),
        verify: Verify | None = None,
        closure: str = ClosureMode.REQUIRE,
        timeout_seconds: float | None = None,
    ) -> Ran[R]:
        """Call a tool through the fence: prepare, keep the lease alive, the tool, commit or abort.

        While the tool runs no transaction is open and no connection of the pool is taken. A result that no certificate can
        hold completes the intent all the same; it is returned, and a later call raises `ResultNotReplayable`.

        Args:
            request: What to do.
            tool: Called without arguments, or with the `CurrentEffect` when it takes one.
            wait_seconds: How long to wait for another holder's outcome before refusing.
            no_effect: Which of the tool's errors say that nothing happened: exception types, or a predicate. Every other
                error leaves the outcome unknown.
            verify: Asks the downstream system about an attempt that was not heard of, outside of any transaction. It makes
                `on_lease_expiry="verify"` the policy of what this call admits. It is called when a later call with a hook
                finds that attempt with its lease run out, and for nothing else: not when the tool raised an error, which is
                for an operator to reconcile, and not when the attempt was admitted under another policy.
            closure: As in `commit`.
            timeout_seconds: As in `commit`.

        Returns:
            Ran: `result`, `replayed`, and the `certificate`.

        Raises:
            InvalidRequest: Before any database work: the request, or `verify` beside another `on_lease_expiry`.
            TypeError: The same: the tool cannot be called, takes more than its effect, or is a coroutine or generator function.
            FenceError: The refusal of prepare or commit.
            ToolUnfinished: The tool returned a coroutine, a generator or a future; its outcome is unknown.
            ResultNotReplayable: It ran before, and its result could not be recorded.
            BaseException: What the tool raised.
        """
        options = Options(wait_seconds, no_effect, verify, closure, timeout_seconds)
        return perform(running(self._desk, request, adapted(tool, awaits=False), options), self._drive)

    async def arun(
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
        """The same for a coroutine function. See `run`; an `AsyncFence` needs no threads for it."""
        options = Options(wait_seconds, no_effect, verify, closure, timeout_seconds)
        return await self._performer.perform(running(self._desk, request, adapted(tool, awaits=True), options))

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
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Make every call of a function, a coroutine function or a method one effect.

        A later call of the same intent gets the recorded result as the annotated return type. Arguments are copied when the
        call begins; those without a JSON form are refused by their path.

        Args:
            intent: A format over the arguments, such as `charge:{order_id}`, or a callable that takes what the function
                takes. Without it the intent is derived from the namespace, the function and its arguments, with a warning
                for an argument that a retry may not repeat.
            domain: The contention scope, given in the same way; the intent when not given.
            identity: The names of the arguments that say what the action is; all of them when not given.
            wait_seconds: How long to wait for another holder's outcome before refusing.
            lease_seconds: How long the effect may run unheard of.
            on_lease_expiry: `fence`, `takeover` or `verify`; with `verify=` it is `verify`.
            no_effect: Which errors say that nothing happened. See `run`.
            verify: Asks the downstream system about an attempt whose lease ran out unheard of. See `run`.
            occurrence: Tells apart equal calls that are all meant; a number, a format or a callable.
            branch: The speculative plan, given like the intent.
            agent: Who acts, given like the intent; the machine and process when not given.

        Raises:
            TypeError: It was given the function itself (write `@fence.fenced()`), or what it wraps is no tool. See `run`.
        """
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
        return lambda function: self._wrap(self._tool(function, declaration))

    def bind(self, function: Callable[P, R], **changes: Any) -> Callable[P, R]:
        """Return the function behind this fence, whatever fence it was declared on; the original is unchanged.

        Args:
            function: A plain function, or one that a fence has wrapped: its declaration comes with it.
            changes: Arguments of `fenced` that are different here.
        """
        return self._of_its_object(function, self._wrap(self._bound(function, changes)))

    def _wrap(self, tool: Tool) -> Any:
        if tool.is_async:
            return self._awaited(tool, lambda *a, **k: lambda _: tool.function(*a, **k), self._performer_perform)

        def fenced(*args: Any, **kwargs: Any) -> Any:
            request = self._request(tool, args, kwargs)
            plan = running(self._desk, request, lambda _: tool.function(*args, **kwargs), tool.options)
            return self._value(tool, perform(plan, self._drive))

        return self._wrapped(tool, fenced)

    async def _performer_perform(self, plan: Any) -> Any:
        return await self._performer.perform(plan)
