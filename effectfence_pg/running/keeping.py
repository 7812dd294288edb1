"""What keeps leases alive while tools run: one thread of the process, or one task of the event loop.

Neither is there while nothing runs that takes longer than a share of its lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from effectfence_pg.running.leases import Batch, Book, Lease
from effectfence_pg.sql.renewal import renew_all

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from effectfence_pg.errors import FenceError
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import PreparedEffect

log = logging.getLogger("effectfence_pg")

MAX_UNDER_WAY: Final = 3
"""Renewals of one fence that may wait for the server at the same time."""


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


class Renewals:
    """The renewals that are on their way, one at a time for each fence while all is well.

    A server that does not answer holds up what waits for it. It must not hold up the other fences, nor the next try of its
    own fence on another connection; but it cannot have any number of them.
    """

    def __init__(self) -> None:
        self._under_way: Counter[int] = Counter()
        self._lock = threading.Lock()

    def begun(self, batches: list[Batch], book: Book) -> list[list[Batch]]:
        """What is to be renewed now, fence by fence; the rest is put off."""
        owners: dict[int, list[Batch]] = {}
        for batch in batches:
            owners.setdefault(id(batch.owner), []).append(batch)
        begun: list[list[Batch]] = []
        with self._lock:
            for owner, theirs in owners.items():
                if self._under_way[owner] < MAX_UNDER_WAY:
                    self._under_way[owner] += 1
                    begun.append(theirs)
                    continue
                for batch in theirs:
                    book.failed(batch)
        return begun

    def ended(self, batches: list[Batch]) -> None:
        """They were answered, or given up."""
        owner = id(batches[0].owner)
        with self._lock:
            self._under_way[owner] -= 1
            if not self._under_way[owner]:
                del self._under_way[owner]


class ThreadKeeper:
    """Renews the leases of every fence of this process, in a thread that is started when there is something to keep.

    What is due is asked for in short-lived threads, one for each fence.
    """

    def __init__(self) -> None:
        self.book = Book(time.monotonic)
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._renewals = Renewals()
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
            for batches in self._renewals.begun(self.book.due(), self.book):
                try:
                    threading.Thread(
                        target=self._renew, args=(batches,), name="effectfence-renewal", daemon=True
                    ).start()
                except RuntimeError as error:
                    # No thread is to be had now; the leases have two more periods.
                    for batch in batches:
                        _failed(batch, error)
                        self.book.failed(batch)
                    self._renewals.ended(batches)

    def _renew(self, batches: list[Batch]) -> None:
        for batch in batches:
            try:
                gone = batch.owner.renew_within(_operation(batch), batch.period_seconds)
            except Exception as error:  # noqa: BLE001 (the other leases go on being kept)
                _failed(batch, error)
                self.book.failed(batch)
            else:
                self.book.done(batch, gone)
            # A beat that is due sooner now has to be waited for anew.
            self._wake.set()
        self._renewals.ended(batches)


class TaskKeeper:
    """The same for one event loop; the task ends when there is nothing to keep."""

    def __init__(self) -> None:
        self.book = Book(time.monotonic)
        self._wake = asyncio.Event()
        self._renewals = Renewals()
        self._tasks: set[asyncio.Task[None]] = set()
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
            for batches in self._renewals.begun(self.book.due(), self.book):
                task = asyncio.get_running_loop().create_task(self._renew(batches), name="effectfence-renewal")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _renew(self, batches: list[Batch]) -> None:
        try:
            for batch in batches:
                try:
                    gone: dict[int, Any] = await batch.owner.renew_within(_operation(batch), batch.period_seconds)
                except Exception as error:  # noqa: BLE001 (the other leases go on being kept)
                    _failed(batch, error)
                    self.book.failed(batch)
                else:
                    self.book.done(batch, gone)
                self._wake.set()
        finally:
            self._renewals.ended(batches)


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
