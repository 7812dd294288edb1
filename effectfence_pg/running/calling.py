"""How a tool that is handed to `run` is called."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from effectfence_pg.running.current import CurrentEffect

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def adapted(tool: Callable[..., Any]) -> Callable[[CurrentEffect], Any]:
    """The tool as a function of its effect: one that takes nothing is called with nothing."""
    return tool if _takes_one(tool) else lambda _: tool()


def _takes_one(tool: Callable[..., Any]) -> bool:
    code, defaults = getattr(tool, "__code__", None), getattr(tool, "__defaults__", None)
    if code is not None and not hasattr(tool, "__wrapped__"):
        # A plain function, without the cost of a signature.
        return code.co_argcount > len(defaults or ()) + (getattr(tool, "__self__", None) is not None)
    try:
        parameters = inspect.signature(tool).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind in _POSITIONAL and p.default is inspect.Parameter.empty for p in parameters)
