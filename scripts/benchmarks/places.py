"""Which cores the two sides of a call run on, while calls are measured that are as short as a switch between them.

Left to itself, the kernel puts client and server on one core or on two, now so and now so, and moves the floor and the fence
without regard to each other. A call by key takes twice as long on two cores, where every answer wakes a sleeping core.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

APART: Final = "a core each"
"""As when each side has a machine of its own."""
TOGETHER: Final = "one core"
"""As when all cores are busy. What one side does costs the other its caches."""
FREE: Final = "where the kernel puts them"


def places(pids: list[int]) -> tuple[str, ...]:
    """Where this process and those can be put, best known first."""
    setting = getattr(os, "sched_setaffinity", None)
    if setting is None or len(os.sched_getaffinity(0)) < 2:  # noqa: PLR2004 (a core each takes two)
        return (FREE,)
    try:
        for pid in pids:
            setting(pid, os.sched_getaffinity(pid))
    except OSError:
        return (FREE,)
    return (APART, TOGETHER)


@contextlib.contextmanager
def placed(where: str, pids: list[int]) -> Iterator[None]:
    """Put this thread on one core, and those processes on it or on another, for the `with` statement."""
    if where == FREE:
        yield
        return
    before = {pid: os.sched_getaffinity(pid) for pid in (0, *pids)}
    first, second, *_ = sorted(before[0])
    try:
        os.sched_setaffinity(0, {first})
        for pid in pids:
            os.sched_setaffinity(pid, {first if where == TOGETHER else second})
        yield
    finally:
        for pid, cores in before.items():
            os.sched_setaffinity(pid, cores)
