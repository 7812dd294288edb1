"""What a forked process must not take over: locks that threads of its parent held, and their places."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Shared(Protocol):
    """What threads of one process share."""

    def begin_anew(self) -> None:
        """Hold nothing for threads that are not there."""


_SHARED: WeakSet[Shared] = WeakSet()


def begin_anew_at_fork(shared: Shared) -> None:
    """Have it begin anew in every process that is forked from this one: whoever held its lock is not there to let go."""
    _SHARED.add(shared)


def _after_fork() -> None:
    for shared in tuple(_SHARED):
        shared.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
