"""Opt-in: hearing of outcomes instead of waiting for the next poll, on a connection of its own.

A notification is a hint and nothing more: what it says is asked for in the usual way, and polls go on for the case that one is
missed. It is sent after the outcome is committed, in a statement of its own, for NOTIFY takes a lock of the whole server at its
COMMIT. LISTEN is session state: it does not work through a transaction pooler, and then the polls are all there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

import psycopg
from sqlalchemy import exc
from sqlalchemy.util import greenlet_spawn

from effectfence_pg.sql.notices import CHANNEL, heard

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from effectfence_pg.waiting.room import WaitingRoom

log = logging.getLogger("effectfence_pg")

LOOK_SECONDS: Final = 0.5
"""How long it takes a listener to notice that it is to end."""
RETRY_SECONDS: Final = 1.0
LISTEN: Final = f"LISTEN {CHANNEL}"
_ERRORS: Final = (psycopg.Error, exc.SQLAlchemyError, OSError)


class Listener:
    """Rings in the waiting room of a fence, from a thread that begins when somebody waits and ends with the fence."""

    def __init__(self, engine: Engine, namespace: str, room: WaitingRoom) -> None:
        self._engine, self._namespace, self._room = engine, namespace, room
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Listen from now on; nothing happens when that was done before."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="effectfence-listener", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Listen no longer."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._hear()
            except _ERRORS as error:
                log.warning("nothing is heard of outcomes, the polls go on: %s", error)
                self._ended.wait(RETRY_SECONDS)

    def _hear(self) -> None:
        pooled: Any = self._engine.raw_connection()
        connection: psycopg.Connection[Any] = pooled.driver_connection
        # The pool makes another one in its place.
        pooled.detach()
        with contextlib.closing(connection):
            connection.set_autocommit(True)
            connection.execute(LISTEN)
            while not self._ended.is_set():
                for notice in connection.notifies(timeout=LOOK_SECONDS):
                    ring(self._room, self._namespace, notice.payload)
                    if self._ended.is_set():
                        return


class AsyncListener:
    """The same as a task."""

    def __init__(self, engine: AsyncEngine, namespace: str, room: WaitingRoom) -> None:
        self._engine, self._namespace, self._room = engine, namespace, room
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Listen from now on; nothing happens when that was done before."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="effectfence-listener")

    async def end(self) -> None:
        """Listen no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except _ERRORS as error:
                log.warning("nothing is heard of outcomes, the polls go on: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _hear(self) -> None:
        pooled: Any = await self._engine.raw_connection()
        connection: psycopg.AsyncConnection[Any] = pooled.driver_connection
        await greenlet_spawn(pooled.detach)
        try:
            await connection.set_autocommit(True)
            await connection.execute(LISTEN)
            async for notice in connection.notifies():
                ring(self._room, self._namespace, notice.payload)
        finally:
            await connection.close()


def ring(room: WaitingRoom, namespace: str, payload: str) -> None:
    """Wake whoever polls for the intent of a notification."""
    key = heard(namespace, payload)
    if key is not None:
        room.ring(key)
