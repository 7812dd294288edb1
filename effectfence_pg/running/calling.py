"""How a tool is called, and what cannot be one: told before anything is admitted."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from effectfence_pg.unfinished import require_callable

if TYPE_CHECKING:
    from collections.abc import Callable

    from effectfence_pg.running.current import CurrentEffect

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def adapted(tool: Callable[..., Any], *, awaits: bool) -> Callable[[CurrentEffect], Any]:
    """The tool as a function of its effect: one that takes nothing is called with nothing.

    Args:
        tool: What is handed to `run`.
        awaits: Whether there is an event loop that awaits what it returns.

    Raises:
        TypeError: It could not be called, or what it does would be done when its effect is on record already.
    """
    require_tool(tool, awaits=awaits)
    return tool if _takes_one(tool) else lambda _: tool()


def require_tool(tool: Callable[..., Any], *, awaits: bool) -> None:
    """Refuse what returns before it has done anything, and what is no function.

    Raises:
        TypeError: See there.
    """
    require_callable(tool, "the tool")
    code = code_of(tool)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        msg = f"{name_of(tool)} is a generator function; fence a function that returns its result"
        raise TypeError(msg)
    if not awaits and inspect.iscoroutinefunction(code):
        msg = f"{name_of(tool)} is a coroutine function, which nobody would await here; use arun, or an AsyncFence"
        raise TypeError(msg)


def require_declaration(given: object) -> None:
    """Refuse `fenced` without its parentheses: the function would be taken for an argument of the declaration.

    Raises:
        TypeError: See there.
    """
    if given is not None:
        msg = "fenced takes its arguments by name, and then the function: write @fence.fenced() or @fence.fenced(intent=...)"
        raise TypeError(msg)


def code_of(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs when this is called: inside of partials, and the `__call__` of an object."""
    inner = without_presets(tool)
    return inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__


def without_presets(tool: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial calls."""
    while isinstance(tool, functools.partial):
        tool = tool.func
    return tool


def name_of(tool: Callable[..., Any]) -> str:
    """Its qualified name; the class of an object that can be called."""
    inner = without_presets(tool)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _takes_one(tool: Callable[..., Any]) -> bool:
    """Whether it takes the effect.

    Raises:
        TypeError: It takes more than that, and would be admitted only to fail.
    """
    code, defaults = getattr(tool, "__code__", None), getattr(tool, "__defaults__", None)
    if code is not None and not code.co_kwonlyargcount and not hasattr(tool, "__wrapped__"):
        # A plain function, without the cost of a signature.
        required = code.co_argcount - len(defaults or ()) - (getattr(tool, "__self__", None) is not None)
        if required <= 1:
            return required == 1
    try:
        parameters = inspect.signature(tool).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _VARIADIC]
    if len(needed) > 1 or any(p.kind not in _POSITIONAL for p in needed):
        msg = f"{name_of(tool)} takes {', '.join(p.name for p in needed)}; a tool takes nothing, or its effect"
        raise TypeError(msg)
    return bool(needed)


def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the caller's for a future to hold what comes of it.

    Raises:
        RuntimeError: It raised StopIteration, which no future takes: whoever awaits it would wait for ever.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        msg = f"{name_of(function)} raised StopIteration"
        raise RuntimeError(msg) from error
