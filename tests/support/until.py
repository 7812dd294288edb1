"""Waiting for a condition, with a limit: never for time to pass."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

LIMIT_SECONDS = 60.0
LOOK_SECONDS = 0.005


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    looking = threading.Event()
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        if condition():
            return
        looking.wait(LOOK_SECONDS)
    raise AssertionError("it did not happen")


async def auntil(condition: Callable[[], object]) -> None:
    """The same in an event loop, which goes on meanwhile."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("it did not happen")
