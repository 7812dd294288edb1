"""Waiting for a condition, with a limit: never for time to pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

LIMIT_SECONDS = 30.0
LOOK_SECONDS = 0.005


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    looking = threading.Event()
    for _ in range(int(LIMIT_SECONDS / LOOK_SECONDS)):
        if condition():
            return
        looking.wait(LOOK_SECONDS)
    raise AssertionError("it did not happen")


async def auntil(condition: Callable[[], object]) -> None:
    """The same in an event loop, which goes on meanwhile."""
    for _ in range(int(LIMIT_SECONDS / LOOK_SECONDS)):
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("it did not happen")
