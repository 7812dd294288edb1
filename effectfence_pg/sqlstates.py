"""What the errors of a database mean: told by their SQLSTATE, never by their words."""

from __future__ import annotations

import psycopg

from effectfence_pg.errors import (
    DatabaseFailure,
    DatabaseUnavailable,
    FenceError,
    PermissionDenied,
    SchemaVersionError,
    SerializationConflict,
)
from effectfence_pg.sql.tables import SCHEMA_VERSION, UPGRADE_COMMAND

CONFLICTS = frozenset({"40001", "40P01"})
"""serialization_failure and deadlock_detected: the whole transaction is run again."""

RETRIED = CONFLICTS | {"53200"}
"""And out of memory, as the server says when its table of predicate locks is full: others end, and leave room in it."""

RACED_UNIQUE = frozenset({"23505", "23P01"})
"""Overlapping serializable transactions may report a unique violation instead; run again, a few times only."""

UNDEFINED = frozenset({"42P01", "3F000", "42703", "42883"})
"""Table, schema, column or function missing: the database is not migrated, or to another version."""

STALE_STATEMENT = frozenset({"26000", "42P05", "0A000"})
"""A prepared statement is gone, there twice or outdated: it is prepared anew, and the transaction run again."""

ODD = RACED_UNIQUE | STALE_STATEMENT
MAX_ODD_RETRIES = 3


def is_retryable(error: BaseException) -> bool:
    """Whether a transaction that ended with this error may be run again as a whole: 40001, 40P01 and 53200.

    Takes psycopg's and SQLAlchemy's errors, and `SerializationConflict`.
    """
    return isinstance(error, SerializationConflict) or sqlstate(error) in RETRIED


def passes(state: str | None, odd: int) -> bool:
    """Whether a transaction that ended like this is run again; `odd` of its ends so far were odd ones, this one included."""
    return state in RETRIED or (state in ODD and odd <= MAX_ODD_RETRIES)


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE behind an error of psycopg or SQLAlchemy."""
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlstate", None)


def translate(error: Exception) -> Exception:
    """The typed error behind a database error; the error itself when it is none of ours."""
    state = sqlstate(error)
    if state in RETRIED:
        return SerializationConflict(sqlstate=state)
    if state in UNDEFINED:
        return SchemaVersionError(found=None, expected=SCHEMA_VERSION, command=UPGRADE_COMMAND)
    if state == "42501":
        return PermissionDenied(reason=first_line(error))
    if (state is not None and state[:2] in {"08", "53", "57"}) or state in {"25006", "28P01", "28000", "3D000"}:
        return DatabaseUnavailable(reason=first_line(error))
    if state is None and isinstance(getattr(error, "orig", None) or error, psycopg.OperationalError):
        # The server says why with a SQLSTATE; without one nobody is there to say anything.
        return DatabaseUnavailable(reason=first_line(error))
    return error


def told(error: Exception, *, migrating: bool = False) -> FenceError:
    """The same, always typed: what a server answers is never told as a database that is not there.

    Args:
        error: Of the driver.
        migrating: It came out of a migration. What is missing then, or in the way, is not mended by a migration.
    """
    known = translate(error)
    if isinstance(known, FenceError) and not (
        migrating and isinstance(known, SchemaVersionError | SerializationConflict)
    ):
        return known
    state = sqlstate(error)
    if state is None:
        return DatabaseUnavailable(reason=one_line(error))
    return DatabaseFailure(reason=one_line(error), sqlstate=state)


def one_line(error: BaseException) -> str:
    """All that the driver said, on one line; where a line ended without punctuation, a full stop stands."""
    said = [line.strip() for line in str(getattr(error, "orig", None) or error).splitlines() if line.strip()]
    return " ".join(line if line[-1] in ".?!:;," or line is said[-1] else f"{line}." for line in said)


def first_line(error: BaseException) -> str:
    """What the server, or the driver, said."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0]
