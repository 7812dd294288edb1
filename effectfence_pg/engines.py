"""Engines that a fence makes for itself: serializable by default, so that a step is one command and not three."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from sqlalchemy import Engine, QueuePool, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool.base import _ConnectionRecord  # pyright: ignore[reportPrivateUsage]
from sqlalchemy.util.queue import Empty, Full, Queue

from effectfence_pg.settings import CLIENT_ENCODING, normalise_url

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry

    from effectfence_pg.values import FenceConfig

SESSION_OPTIONS = "-c default_transaction_isolation=serializable -c plan_cache_mode=force_generic_plan"
"""A plan made for the values of one call is made again for the next, which takes longer than the call. And where statistics do
not know a namespace, as they do not know a new one, such a plan takes it for one row, and reads all of it.
"""


class _Place:
    """One who waits: the lock opens when there is something for it."""

    __slots__ = ("given", "lock")

    def __init__(self) -> None:
        self.given: Any = None
        self.lock = Lock()
        self.lock.acquire()


class Idle(Queue[Any]):
    """What a pool has to lend. Its lock is taken by those who have to wait, and by those whom somebody waits for.

    What comes back is handed to the one who has waited longest. Left for whoever comes first, it would be taken again by the
    thread that brought it, which is running, and the others would wait until their time is over.
    """

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._line: deque[_Place] = deque()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The one that came back last.

        Raises:
            sqlalchemy.util.queue.Empty: There is none, or none came back in time (seconds).
        """
        try:
            return self.queue.pop()
        except IndexError:
            if not block:
                raise Empty from None
        place = _Place()
        with self.mutex:
            # In the line before it is looked again: whoever puts one back looks for the line after it is there.
            self._line.append(place)
            self._serve()
        try:
            place.lock.acquire(True, -1 if timeout is None else timeout)
        except BaseException:
            if (given := self._leave(place)) is not None:
                self.put(given)
            raise
        given = place.given or self._leave(place)
        if given is None:
            raise Empty
        return given

    def put(self, item: Any, block: bool = False, timeout: float | None = None) -> None:  # noqa: ARG002 (a pool never blocks)
        """Give one back.

        Raises:
            sqlalchemy.util.queue.Full: There is no room for it.
        """
        if 0 < self.maxsize <= len(self.queue):
            raise Full
        self.queue.append(item)
        if self._line:
            with self.mutex:
                self._serve()

    def _serve(self) -> None:
        while self._line and self.queue:
            place = self._line.popleft()
            try:
                place.given = self.queue.pop()
            except IndexError:
                # Somebody who does not wait was faster.
                self._line.appendleft(place)
            else:
                place.lock.release()

    def _leave(self, place: _Place) -> Any:
        """Leave the line; what was handed over meanwhile, if anything was."""
        with self.mutex:
            if place.given is None:
                self._line.remove(place)
            return place.given


class LeanPool(QueuePool):
    """The pool of an engine of the fence's own, which lends its entries as they are.

    What the pool's own checkout puts around a connection (a proxy, its weak reference, events, a reset) takes as long as a
    third of a replay, and guards against what the fence's own few lines do not do. `engine.connect()` works as ever, on the
    same connections.
    """

    # SQLAlchemy names a pool's logger after its class: what it says is not among what the fence says.
    _sqla_logger_namespace = "sqlalchemy.pool.LeanPool"
    _queue_class = Idle
    _disposed = False

    def dispose(self) -> None:
        """Close what is here now, and later what is still lent."""
        self._disposed = True
        super().dispose()

    def _create_connection(self) -> ConnectionPoolEntry:
        # Opened by whoever gets it. One that cannot be opened goes back as it is then, and whoever waits for one may try;
        # what never came to be would only leave room, which nobody is told of.
        return _ConnectionRecord(self, connect=False)

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._disposed:
            # Looked at after it is back, so that none comes back open. It stays in here, closed: somebody may wait for it.
            self._close_idle()

    def _close_idle(self) -> None:
        idle: list[Any] = []
        with suppress(Empty):
            while True:
                idle.append(self._pool.get(False))
        for entry in idle:
            entry.close()
            super()._do_return_conn(entry)

    def borrow(self) -> ConnectionPoolEntry:
        """A connection, open; the caller gives it back whatever happens.

        Raises:
            sqlalchemy.exc.TimeoutError: None is free.
            psycopg.Error: None can be opened.
        """
        idle: Any = self._pool
        try:
            # Without the calls on the way to it, where one is here.
            entry: Any = idle.queue.pop()
        except IndexError:
            entry = self._do_get()
        try:
            entry.get_connection()
        except BaseException:
            self._do_return_conn(entry)
            raise
        return entry

    def give_back(self, entry: Any) -> None:
        """Return what was borrowed, with no transaction open."""
        self._do_return_conn(entry)


_ENGINES: WeakSet[Engine] = WeakSet()


def leave_at_fork(engine: Engine) -> None:
    """Never use connections of the parent process in a child: two processes on one would read each other's verdicts."""
    _ENGINES.add(engine)


def _after_fork() -> None:
    for engine in tuple(_ENGINES):
        # The parent goes on using its connections; they are left as they are, neither closed nor returned.
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def make_engine(url: str | URL, config: FenceConfig) -> Engine:
    """An engine of the fence's own.

    A pooler that refuses or ignores the start-up option costs three commands a step instead of one, in the same round trip:
    every statement sees for itself in which isolation it runs.
    """
    engine = create_engine(normalise_url(url), poolclass=LeanPool, **_options(config))
    event.listen(engine, "do_connect", _connect)
    return engine


def make_async_engine(url: str | URL, config: FenceConfig) -> AsyncEngine:
    """The same for an event loop."""
    engine = create_async_engine(normalise_url(url), **_options(config))
    event.listen(engine.sync_engine, "do_connect", _connect)
    return engine


def _options(config: FenceConfig) -> dict[str, Any]:
    return {
        "pool_size": config.pool_size,
        "max_overflow": config.max_overflow,
        "pool_timeout": config.retry_deadline_seconds,
        # The connection that was used last is the one whose server process is warm.
        "pool_use_lifo": True,
        # What leaves a transaction open ends it: a rollback at every return would be work for nothing.
        "pool_reset_on_return": None,
        "connect_args": {
            **CLIENT_ENCODING,
            "prepare_threshold": config.prepare_threshold,
            "connect_timeout": config.connect_timeout_seconds,
            "application_name": config.application_name,
        },
    }


def _connect(dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    given = options.get("options")
    wanted = f"{given} {SESSION_OPTIONS}" if given else SESSION_OPTIONS
    try:
        return dialect.connect(*arguments, **{**options, "options": wanted})
    except psycopg.OperationalError as error:
        if "startup parameter" not in str(error):
            raise
        return dialect.connect(*arguments, **options)
