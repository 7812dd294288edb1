"""One connection for people who read: read-only, with rows as dictionaries, streamed where there may be millions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, LiteralString, cast

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from effectfence_pg.errors import DatabaseUnavailable, PermissionDenied
from effectfence_pg.settings import normalise_url
from effectfence_pg.sql.audit import QUIET
from effectfence_pg.sqlstates import one_line, told
from effectfence_pg.versions import HIDDEN, UNNAMED, require_version

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from sqlalchemy import URL

Row = dict[str, Any]
Reader = psycopg.Connection[Row]

CONNECT_SECONDS = 10
FETCHED_ROWS = 1000
"""Rows that are held at once: with bodies of a megabyte, a gigabyte; with ordinary ones, nothing to speak of."""
_VERSION = "SELECT version_num FROM effectfence.alembic_version"


@contextlib.contextmanager
def reading(
    url: str | URL,
    *,
    writes: bool = False,
    any_version: bool = False,
    by_views: bool = False,
    application_name: str = "effectfence-audit",
) -> Generator[Reader]:
    """A connection to a database of this library's version.

    Args:
        url: Which database.
        writes: Whether something is stored; otherwise the server refuses to.
        any_version: Also when the schema is another one, or none: for who asks `schema_version` and looks no further.
        by_views: No table is read: of views everything is seen by whoever may read them, whatever row security hides.
        application_name: How the connection names itself.

    Raises:
        DatabaseUnavailable, SchemaVersionError, PermissionDenied: It cannot be used, when it is opened or later.
    """
    # As keywords: libpq does not read a blank in an option as SQLAlchemy writes it.
    _, options = cast("Any", PGDialect_psycopg()).create_connect_args(normalise_url(url))
    try:
        connection: Reader = Reader.connect(
            **options,
            row_factory=dict_row,  # pyright: ignore[reportArgumentType] (its default is a tuple's)
            connect_timeout=CONNECT_SECONDS,
            application_name=application_name,
            client_encoding="utf8",
        )
    except psycopg.Error as error:
        raise DatabaseUnavailable(reason=one_line(error)) from error
    with contextlib.closing(connection):
        try:
            connection.read_only = not writes
            if not any_version:
                require_version(schema_version(connection))
                if not by_views:
                    require_seen(connection)
            yield connection
            connection.commit()
        except psycopg.Error as error:
            raise told(error) from error


def schema_version(reader: Reader) -> str | None:
    """The revision of the database; None when it was never migrated."""
    known = reader.execute("SELECT to_regclass('effectfence.alembic_version') IS NOT NULL AS known").fetchone()
    found = reader.execute(_VERSION).fetchone() if known and known["known"] else None
    return None if found is None else str(found["version_num"])


def require_seen(reader: Reader) -> None:
    """Refuse to read tables of which row security shows nothing: "nothing is on record" would be a false answer.

    Raises:
        PermissionDenied: It is on for this role, and no namespace is named.
    """
    if one(reader, HIDDEN)["hidden"]:
        raise PermissionDenied(reason=UNNAMED)


def rows(reader: Reader, query: str, parameters: Mapping[str, Any] | None = None, *, quiet: bool = False) -> list[Row]:
    """All rows of a query.

    Args:
        reader: The connection.
        query: One of `sql.audit`.
        parameters: Its values.
        quiet: By index only.
    """
    if quiet:
        reader.execute(QUIET)
    return reader.execute(_trusted(query), parameters).fetchall()


def one(reader: Reader, query: str, parameters: Mapping[str, Any] | None = None) -> Row:
    """The one row of a query."""
    return rows(reader, query, parameters)[0]


def streamed(reader: Reader, query: str, parameters: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of a query, a thousand at a time: what is held does not grow with what there is."""
    with reader.cursor("effectfence_stream") as cursor:
        cursor.itersize = FETCHED_ROWS
        yield from cursor.execute(_trusted(query), parameters)


def _trusted(query: str) -> sql.SQL:
    """Our own constants; every value is a parameter."""
    return sql.SQL(cast("LiteralString", query))
