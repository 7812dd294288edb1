"""The only place that touches the database: one operation, one SERIALIZABLE transaction, one round trip.

What to do when it goes wrong is decided in `steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import exc, text

from effectfence_pg.binding import compiled
from effectfence_pg.engines import LeanPool
from effectfence_pg.errors import DatabaseUnavailable
from effectfence_pg.pipelining import (
    BEGIN,
    BEGIN_READ,
    BY_KEY,
    COMMIT,
    Session,
    forget,
    naming,
    session_of,
    transaction,
)
from effectfence_pg.sqlstates import STALE_STATEMENT, first_line, sqlstate
from effectfence_pg.steps import ConnectionLost, NotReached

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Engine

    from effectfence_pg.sql.operation import Operation

IDLE = TransactionStatus.IDLE


class Executor:
    """Runs operations of one engine, each in one round trip.

    Args:
        engine: The engine.
        direct: Its connections are serializable by default: a statement alone is a whole transaction then, as long as what
            comes back says so. Otherwise BEGIN, the statement and COMMIT are flushed together.
        tenant: The namespace that every transaction names to row security; None where that is not in use.
    """

    def __init__(self, engine: Engine, *, direct: bool = False, tenant: str | None = None) -> None:
        self._direct = direct
        self._engine = engine
        self._lean = isinstance(engine.pool, LeanPool)
        self._tenant = tenant_of(tenant)

    def __call__(self, operation: Operation[Any]) -> Any:
        """The verdict row of the operation, committed.

        Raises:
            ConnectionLost, NotReached: See there.
            psycopg.Error: What the server said.
        """
        # Looked up each time: disposing of an engine, as after a fork, gives it another pool.
        pool: Any = self._engine.pool
        try:
            pooled = pool.borrow() if self._lean else self._engine.raw_connection()
        except (exc.SQLAlchemyError, psycopg.Error) as error:
            # The pool passes on what the driver raised as it is.
            raise not_reached(error) from error
        # Of a dialect that is not asynchronous this is the driver's own.
        connection: Any = pooled.dbapi_connection
        try:
            row = self._run(connection, session_of(pooled, connection), operation)
            if operation.writes and self._direct and row.isolation != "serializable":
                # A pooler in between did not pass the default on; the statement wrote nothing.
                self._direct = False
                row = self._run(connection, session_of(pooled, connection), operation)
        except psycopg.Error as error:
            if connection.closed:
                pooled.invalidate(error)
                raise ConnectionLost(first_line(error)) from error
            raise
        else:
            return row
        finally:
            if connection.pgconn.transaction_status != IDLE:
                _end_transaction(pooled, connection)
            if self._lean:
                pool.give_back(pooled)
            else:
                pooled.close()

    def _run(self, connection: Any, session: Session, operation: Operation[Any]) -> Any:
        try:
            return connection.wait(commands(session, operation, direct=self._direct, tenant=self._tenant))
        except psycopg.Error as error:
            if not is_outdated(session, error):
                raise
        if connection.pgconn.transaction_status != IDLE:
            connection.rollback()
        return connection.wait(commands(session, operation, direct=self._direct, tenant=self._tenant))


def is_outdated(session: Session, error: psycopg.Error) -> bool:
    """Whether what was prepared on this connection is outdated: it is forgotten then, all of it, and nothing was executed."""
    if error.sqlstate not in STALE_STATEMENT or session.connection.closed:
        return False
    forget(session)
    return True


NAME_TENANT: Final = text("SELECT set_config('effectfence.namespace', :namespace, true)")
"""For a transaction of SQLAlchemy's: the tenant that row security goes by."""


def tenant_of(namespace: str | None) -> tuple[bytes, ...]:
    """What names the tenant in a transaction of the driver's; nothing where row security is not in use."""
    return () if namespace is None else (naming(namespace),)


def commands(
    session: Session, operation: Operation[Any], *, direct: bool, tenant: tuple[bytes, ...] = ()
) -> Generator[Any, Any, Any]:
    """What is sent for an operation, and the row that comes back: for the driver's `wait` of either kind."""
    known = compiled(operation.statement)
    values = known.values(operation.parameters)
    if not tenant and (not operation.writes or (direct and not operation.many)):
        return transaction(session, known.text, values)
    before = (BEGIN if operation.writes else BEGIN_READ, *tenant, *((BY_KEY,) if operation.many else ()))
    return transaction(session, known.text, values, before=before, after=(COMMIT,))


def _end_transaction(pooled: Any, connection: Any) -> None:
    """A refused statement leaves a failed transaction open; a connection goes back to the pool without one."""
    if connection.closed:
        return
    try:
        connection.rollback()
    except psycopg.Error as error:
        pooled.invalidate(error)


def not_reached(error: Exception) -> Exception:
    """What a connection that could not be had means: refused for good, or to be tried again."""
    if sqlstate(error) in {"28P01", "28000", "3D000"}:
        return DatabaseUnavailable(reason=first_line(error))
    return NotReached(first_line(error))
