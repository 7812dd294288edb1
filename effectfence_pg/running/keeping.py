"""What keeps leases alive while tools run: one thread of the process, or one task of the event loop.

Neither is there while nothing runs that takes longer than a share of its lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from effectfence_pg.running.leases import Batch, Book, Lease
from effectfence_pg.sql.renewal import renew_all

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from effectfence_pg.errors import FenceError
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import PreparedEffect

log = logging.getLogger("effectfence_pg")


class Renews(Protocol):
    """A fence whose leases are kept."""

    def renew_within(self, operation: Operation[dict[int, FenceError]], seconds: float) -> dict[int, FenceError]:
        """Run the operation, and give up after so many seconds."""
        ...


class RenewsAsync(Protocol):
    """The same in an event loop."""

    def renew_within(
        self, operation: Operation[dict[int, FenceError]], seconds: float
    ) -> Awaitable[dict[int, FenceError]]:
        """Run the operation, and give up after so many seconds."""
        ...


def _operation(batch: Batch) -> Operation[dict[int, FenceError]]:
    tickets = [lease.prepared for lease in batch.leases]
    return renew_all(tickets[0].namespace, tickets)


def _failed(batch: Batch, error: Exception) -> None:
    log.warning("%d leases could not be renewed, trying again: %s", len(batch.leases), error)


class ThreadKeeper:
    """Renews the leases of every fence of this process, in a thread that is started when there is something to keep."""

    def __init__(self) -> None:
        self.book = Book(time.monotonic)
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, owner: Renews, prepared: PreparedEffect, period_seconds: float) -> Lease:
        """Keep a lease alive until it is let go."""
        lease, first = self.book.add(owner, prepared, period_seconds)
        if first:
            self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._keep, name="effectfence-keeper", daemon=True)
                    self._thread.start()
        return lease

    def let_go(self, lease: Lease) -> None:
        """The effect is decided, or given up."""
        self.book.remove(lease)

    def _keep(self) -> None:
        while True:
            self._wake.wait(self.book.wait_seconds())
            self._wake.clear()
            for batch in self.book.due():
                try:
                    gone = batch.owner.renew_within(_operation(batch), batch.period_seconds)
                except Exception as error:  # noqa: BLE001 (the other leases go on being kept)
                    _failed(batch, error)
                    self.book.failed(batch)
                else:
                    self.book.done(batch, gone)


class TaskKeeper:
    """The same for one event loop; the task ends when there is nothing to keep."""

    def __init__(self) -> None:
        self.book = Book(time.monotonic)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def keep(self, owner: RenewsAsync, prepared: PreparedEffect, period_seconds: float) -> Lease:
        """Keep a lease alive until it is let go."""
        lease, first = self.book.add(owner, prepared, period_seconds)
        if first:
            self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="effectfence-keeper")
        return lease

    def let_go(self, lease: Lease) -> None:
        """The effect is decided, or given up."""
        self.book.remove(lease)
        if self.book.wait_seconds() is None:
            self._wake.set()

    async def _keep(self) -> None:
        while (seconds := self.book.wait_seconds()) is not None:
            waiting = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait({waiting}, timeout=seconds)
            finally:
                waiting.cancel()
            self._wake.clear()
            for batch in self.book.due():
                try:
                    gone: dict[int, Any] = await batch.owner.renew_within(_operation(batch), batch.period_seconds)
                except Exception as error:  # noqa: BLE001 (the other leases go on being kept)
                    _failed(batch, error)
                    self.book.failed(batch)
                else:
                    self.book.done(batch, gone)


_threads = [ThreadKeeper()]
_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, TaskKeeper] = WeakKeyDictionary()


def _after_fork() -> None:
    # Threads do not survive a fork, and the leases are those of the parent.
    _threads[0] = ThreadKeeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def thread_keeper() -> ThreadKeeper:
    """The one of this process."""
    return _threads[0]


def task_keeper() -> TaskKeeper:
    """The one of the running event loop."""
    loop = asyncio.get_running_loop()
    keeper = _tasks.get(loop)
    if keeper is None:
        keeper = _tasks[loop] = TaskKeeper()
    return keeper
