"""Which version a database has, and whether this library can work with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from effectfence_pg.errors import DatabaseEncodingError, SchemaVersionError
from effectfence_pg.sql.tables import SCHEMA, SCHEMA_VERSION, UPGRADE_COMMAND

if TYPE_CHECKING:
    from sqlalchemy import Connection


def current(connection: Connection) -> str | None:
    """The revision of a database; None when it was never migrated."""
    known = connection.scalar(text("SELECT to_regclass('effectfence.alembic_version') IS NOT NULL"))
    if not known:
        return None
    return connection.scalar(text(f"SELECT version_num FROM {SCHEMA}.alembic_version"))  # noqa: S608 (a constant)


def require_usable(connection: Connection) -> None:
    """Refuse a database that this library cannot work with.

    Raises:
        DatabaseEncodingError: It is not UTF8.
        SchemaVersionError: With the command that mends it.
    """
    encoding = connection.scalar(text("SELECT getdatabaseencoding()"))
    found = current(connection)
    if encoding != "UTF8":
        raise DatabaseEncodingError(encoding=str(encoding))
    require_version(found)


def require_version(found: str | None) -> None:
    """Refuse a database that was never migrated, or is older or newer than this library.

    Raises:
        SchemaVersionError: With the command that mends it.
    """
    if found == SCHEMA_VERSION:
        return
    command_line = "pip install --upgrade effectfence-pg" if is_newer(found) else UPGRADE_COMMAND
    raise SchemaVersionError(found=found, expected=SCHEMA_VERSION, command=command_line)


def is_newer(found: str | None) -> bool:
    """Whether a revision is of a later version of this library."""
    return found is not None and found > SCHEMA_VERSION
