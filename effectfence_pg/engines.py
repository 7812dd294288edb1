"""Engines that a fence makes for itself: serializable by default, so that a step is one command and not three."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from sqlalchemy import Engine, QueuePool, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
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


class Idle(Queue[Any]):
    """What a pool has to lend. Its lock is taken by those who have to wait, and by those whom somebody waits for."""

    _waiting = 0

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The one that came back last.

        Raises:
            sqlalchemy.util.queue.Empty: There is none, or none came back in time (seconds).
        """
        ends = time.monotonic() + (timeout or 0.0)
        while True:
            try:
                return self.queue.pop()
            except IndexError:
                left = ends - time.monotonic()
                if not block or (timeout is not None and left <= 0):
                    raise Empty from None
            with self.not_empty:
                # Said before it is looked again: whoever puts one back looks for this after it is there.
                self._waiting += 1
                try:
                    if not self.queue:
                        self.not_empty.wait(None if timeout is None else left)
                finally:
                    self._waiting -= 1

    def put(self, item: Any, block: bool = False, timeout: float | None = None) -> None:  # noqa: ARG002 (a pool never blocks)
        """Give one back.

        Raises:
            sqlalchemy.util.queue.Full: There is no room for it.
        """
        if 0 < self.maxsize <= len(self.queue):
            raise Full
        self.queue.append(item)
        if self._waiting:
            with self.not_empty:
                self.not_empty.notify()


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
        if self._disposed:
            entry.close()
        else:
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
