"""Which version a database has, and whether this library can work with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from effectfence_pg.errors import DatabaseEncodingError, PermissionDenied, SchemaVersionError
from effectfence_pg.sql.tables import SCHEMA, SCHEMA_VERSION, UPGRADE_COMMAND

if TYPE_CHECKING:
    from sqlalchemy import Connection


def current(connection: Connection) -> str | None:
    """The revision of a database; None when it was never migrated."""
    known = connection.scalar(text("SELECT to_regclass('effectfence.alembic_version') IS NOT NULL"))
    if not known:
        return None
    return connection.scalar(text(f"SELECT version_num FROM {SCHEMA}.alembic_version"))  # noqa: S608 (a constant)


HIDDEN: Final = f"""
SELECT row_security_active('{SCHEMA}.intents') AND coalesce(current_setting('{SCHEMA}.namespace', true), '') = ''
  AND has_table_privilege('{SCHEMA}.intents', 'SELECT') AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_policy p CROSS JOIN LATERAL unnest(p.polroles) AS given (role)
    WHERE p.polrelid = to_regclass('{SCHEMA}.intents') AND p.polname <> 'tenants' AND p.polpermissive
      AND (given.role = 0 OR pg_has_role(given.role, 'USAGE'))) AS hidden"""  # noqa: S608 (constants)
"""Whether row security shows this session nothing, because no tenant is named. Operators have a policy of their own; who has no
right to the tables is refused by the server."""

UNNAMED: Final = "row security is on and no namespace is named, so nothing of the record can be seen"


def require_usable(connection: Connection, *, tenant_is_named: bool = False) -> None:
    """Refuse a database that this library cannot work with.

    Args:
        connection: A connection to it.
        tenant_is_named: Every transaction is going to name its namespace to row security.

    Raises:
        DatabaseEncodingError: It is not UTF8.
        SchemaVersionError: With the command that mends it.
        PermissionDenied: Row security would hide everything, and every answer be a wrong one.
    """
    encoding = connection.scalar(text("SELECT getdatabaseencoding()"))
    found = current(connection)
    if encoding != "UTF8":
        raise DatabaseEncodingError(encoding=str(encoding))
    require_version(found)
    if not tenant_is_named and connection.scalar(text(HIDDEN)):
        raise PermissionDenied(reason=UNNAMED)


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
