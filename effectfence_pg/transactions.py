"""The only place that touches the database: one operation, one SERIALIZABLE transaction, one round trip.

What to do when it goes wrong is decided once, in `steps`, which does no I/O: it asks for executions and pauses and is told
what came back. A few lines drive it, sync here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import exc, text

from effectfence_pg.binding import compiled
from effectfence_pg.engines import LeanPool
from effectfence_pg.errors import (
    DatabaseUnavailable,
    RetriesExhausted,
    SerializationConflict,
)
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
from effectfence_pg.sql.operation import Operation, Then
from effectfence_pg.sqlstates import ODD, STALE_STATEMENT, first_line, passes, sqlstate, translate

if TYPE_CHECKING:
    from sqlalchemy import Engine

T = TypeVar("T")

IDLE = TransactionStatus.IDLE

MAX_STEPS = 16
BACKOFF_BASE_SECONDS = 0.001
BACKOFF_MAX_SECONDS = 0.25


class ConnectionLost(Exception):  # noqa: N818 (a signal between this module's functions, never raised to callers)
    """The connection died after the operation was sent: whether it was committed is unknown."""


class NotReached(Exception):  # noqa: N818
    """No connection could be had: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this long; `retry` when a transaction is about to be run again, and not an answer to be asked for again."""

    seconds: float
    retry: bool = False


Steps = Generator[Operation[Any] | Pause, Any, T]
"""What a caller has to do, one thing after the other: run an operation in a transaction of its own and send back the row (or
throw the error), or wait. It ends with the answer."""


def steps(operation: Operation[T], deadline_seconds: float, *, insists: bool = False) -> Steps[T]:
    """Run an operation and what it chains, retrying each transaction as a whole until the deadline.

    A lost connection is retried as well: every operation carries its own token and recognises its own earlier success. One
    that cannot be had at all is a refusal at once, unless the operation `insists`.
    """
    for _ in range(MAX_STEPS):
        try:
            verdict = operation.interpret((yield operation))
        except UNANSWERED as error:
            verdict = yield from _again(operation, time.monotonic() + deadline_seconds, error, insists=insists)
        if type(verdict) is not Then:
            return cast("T", verdict)
        operation = cast("Then[T]", verdict).operation
    raise SerializationConflict(sqlstate="40001")


UNANSWERED = (SerializationConflict, psycopg.Error, exc.DBAPIError, ConnectionLost, NotReached)
"""What `steps` decides about: whether the transaction is run again, and when."""


def _again(operation: Operation[T], deadline: float, failed: Exception, *, insists: bool) -> Steps[T | Then[T]]:
    started, attempt, sent, odd = time.monotonic(), 0, insists, 0
    error: Exception = failed
    while True:
        attempt += 1
        if isinstance(error, ConnectionLost):
            sent = True
            _give_up_after(deadline, error)
        elif isinstance(error, NotReached):
            # Nothing was ever sent: refuse now. After a lost answer it is worth waiting for the server to come back.
            _give_up_after(deadline if sent else 0.0, error)
        else:
            state = sqlstate(error)
            odd += state in ODD
            if state is None or not passes(state, odd):
                raise translate(error) from error
            if time.monotonic() >= deadline:
                elapsed = time.monotonic() - started
                raise RetriesExhausted(attempts=attempt, elapsed_seconds=elapsed, sqlstate=state) from error
        yield Pause(backoff(attempt), retry=True)
        try:
            return operation.interpret((yield operation))
        except UNANSWERED as again:
            error = again


def _give_up_after(deadline: float, error: Exception) -> None:
    if time.monotonic() >= deadline:
        raise DatabaseUnavailable(reason=str(error)) from error


def backoff(attempt: int) -> float:
    """Full jitter, seconds: a burst of rivals spreads out instead of meeting again."""
    return random.uniform(0, min(BACKOFF_MAX_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt))  # noqa: S311


def drive(running: Steps[T], execute: Callable[[Operation[Any]], Any], pause: Callable[[Pause], None]) -> T:
    """Do what the steps ask for, here and now."""
    try:
        asked = next(running)
        while True:
            if isinstance(asked, Pause):
                pause(asked)
                asked = running.send(None)
                continue
            try:
                row = execute(asked)
            except Exception as error:  # noqa: BLE001 (every outcome goes back to the steps, which decide)
                asked = running.throw(error)
            else:
                asked = running.send(row)
    except StopIteration as done:
        return done.value


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
