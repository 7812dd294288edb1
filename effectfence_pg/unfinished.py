"""What a tool may return in place of a result: work that is still to be done. It must never go on record as done."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
from typing import Any, Final, TypeVar

from effectfence_pg.errors import ToolUnfinished

T = TypeVar("T")

EXPRESSION: Final = "<genexpr>"
"""The name of the code of every generator expression."""


def finished(returned: T, *, intent: str, rolled_back: bool = False) -> T:
    """What a tool returned, when that is a result.

    Args:
        returned: It.
        intent: What it was called for.
        rolled_back: Whether everything that it did is undone by the error.

    Raises:
        ToolUnfinished: It is a coroutine, what a generator function returns (both are closed) or a future. What the tool did
            before it returned that is done, so the outcome is unknown.
    """
    if not _unfinished(returned):
        return returned
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        # One that was begun may raise anything when it is closed; one that runs elsewhere cannot be closed.
        with contextlib.suppress(Exception):
            returned.close()
    raise ToolUnfinished(intent=intent, returned=type(returned).__name__, rolled_back=rolled_back)


def _unfinished(returned: object) -> bool:
    if inspect.isgenerator(returned):
        # An expression is a result that is read once: its tool has run. The body of a generator function has not.
        return returned.gi_code.co_name != EXPRESSION
    if inspect.isasyncgen(returned):
        return returned.ag_code.co_name != EXPRESSION
    return inspect.isawaitable(returned) or isinstance(returned, concurrent.futures.Future)


def require_callable(function: Any, what: str) -> None:
    """Refuse what cannot be called, before anything is admitted that it would be called for.

    Raises:
        TypeError: It is no function.
    """
    if not callable(function):
        msg = f"{what} is of type {type(function).__name__}, which cannot be called"
        raise TypeError(msg)
