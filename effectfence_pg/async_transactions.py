"""The same steps in an event loop: what is decided stands in `steps`, and this only waits otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from sqlalchemy import exc
from sqlalchemy.util import greenlet_spawn

from effectfence_pg.pipelining import session_of
from effectfence_pg.steps import ConnectionLost, Pause, Steps
from effectfence_pg.transactions import (
    IDLE,
    commands,
    is_outdated,
    not_reached,
    tenant_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from effectfence_pg.pipelining import Session
    from effectfence_pg.sql.operation import Operation

T = TypeVar("T")


async def adrive(
    running: Steps[T],
    execute: Callable[[Operation[Any]], Awaitable[Any]],
    pause: Callable[[Pause], Awaitable[None]],
) -> T:
    """Do what the steps ask for, and let others run while waiting."""
    try:
        asked = next(running)
        while True:
            if isinstance(asked, Pause):
                await pause(asked)
                asked = running.send(None)
                continue
            try:
                row = await execute(asked)
            except Exception as error:  # noqa: BLE001 (every outcome goes back to the steps, which decide)
                asked = running.throw(error)
            else:
                asked = running.send(row)
    except StopIteration as done:
        return done.value
    finally:
        # A task that is cancelled in a pause gives its seat up here, and not when the garbage is collected.
        running.close()


class AsyncExecutor:
    """Runs operations of one asynchronous engine, each in one round trip. See `Executor`."""

    def __init__(self, engine: AsyncEngine, *, direct: bool = False, tenant: str | None = None) -> None:
        self._engine = engine
        self._direct = direct
        self._tenant = tenant_of(tenant)

    async def __call__(self, operation: Operation[Any]) -> Any:
        """The verdict row of the operation, committed.

        Raises:
            ConnectionLost, NotReached: See there.
            psycopg.Error: What the server said.
        """
        try:
            pooled: Any = await self._engine.raw_connection()
        except (exc.SQLAlchemyError, psycopg.Error) as error:
            raise not_reached(error) from error
        connection: psycopg.AsyncConnection[Any] = pooled.driver_connection
        try:
            row = await self._run(connection, session_of(pooled, connection), operation)
            if self._direct and operation.writes and row.isolation != "serializable":
                self._direct = False
                row = await self._run(connection, session_of(pooled, connection), operation)
        except psycopg.Error as error:
            if connection.closed:
                raise ConnectionLost(str(error).partition("\n")[0]) from error
            raise
        except BaseException:
            # Cancelled in the middle of a command: there is no telling what would be read next.
            connection.pgconn.finish()
            raise
        else:
            return row
        finally:
            await _give_back(pooled, connection)

    async def _run(self, connection: psycopg.AsyncConnection[Any], session: Session, operation: Operation[Any]) -> Any:
        try:
            return await connection.wait(self._asking(session, operation))
        except psycopg.Error as error:
            if not is_outdated(session, error):
                raise
        if connection.pgconn.transaction_status != IDLE:
            await connection.rollback()
        return await connection.wait(self._asking(session, operation))

    def _asking(self, session: Session, operation: Operation[Any]) -> Any:
        return commands(session, operation, direct=self._direct, tenant=self._tenant)


async def _give_back(pooled: Any, connection: psycopg.AsyncConnection[Any]) -> None:
    """Return a connection to the pool with no transaction open; what cannot be used any more is replaced by the pool."""
    if not connection.closed and connection.pgconn.transaction_status != IDLE:
        try:
            await connection.rollback()
        except BaseException:
            connection.pgconn.finish()
            raise
    if connection.closed:
        await greenlet_spawn(pooled.invalidate)
    await greenlet_spawn(pooled.close)
