"""Migrations as a library: the same scripts that `alembic upgrade` runs."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, NullPool, create_engine, exc, text

from effectfence_pg.settings import CLIENT_ENCODING, normalise_url
from effectfence_pg.sql.statistics import FIRST_STATISTICS
from effectfence_pg.sqlstates import told
from effectfence_pg.versions import current, is_newer, require_version

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import URL

_PACKAGE = Path(__file__).parent


def script_location() -> Path:
    """Where the migration scripts are: inside the wheel, or beside the package in a checkout."""
    bundled = _PACKAGE / "migrations"
    return bundled if (bundled / "env.py").exists() else _PACKAGE.parent / "migrations"


def config(connection: Connection, **attributes: Any) -> Config:
    """An alembic configuration that runs on this connection, in the caller's transaction."""
    made = Config()
    made.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes.update(connection=connection, quiet=True, **attributes)
    return made


def upgrade(database: str | URL | Connection, revision: str = "effectfence@head") -> None:
    """Bring a database to a revision, by default the one this library works with.

    Args:
        database: A URL, or a connection in whose transaction the migration runs; the caller commits it then.
        revision: An alembic revision.

    Raises:
        DatabaseUnavailable: It cannot be reached.
        DatabaseFailure, PermissionDenied: The server refused a statement, and nothing was changed; on a connection that was
            given, the driver's own error.
        DatabaseEncodingError: It is not UTF8.
        SchemaVersionError: It is newer than this library.
    """

    def act(config: Config) -> None:
        found = current(config.attributes["connection"])
        if is_newer(found):
            require_version(found)
        command.upgrade(config, revision)

    _run(database, act)


def downgrade(database: str | URL | Connection, revision: str = "base", *, drop_certificates: bool = False) -> None:
    """Take a database back.

    Args:
        database: A URL, or a connection in whose transaction the migration runs; the caller commits it then.
        revision: An alembic revision.
        drop_certificates: To base also while certificates or undecided effects exist; otherwise the database refuses, because
            an effect that is forgotten is admitted, and run, again.

    Raises:
        DatabaseFailure: The database refused, and nothing was changed; otherwise as `upgrade`.
    """
    _run(database, partial(command.downgrade, revision=revision), drop_certificates=drop_certificates)


def _run(database: str | URL | Connection, act: Callable[[Config], None], **attributes: Any) -> None:
    if isinstance(database, Connection):
        if not database.in_transaction():
            # alembic commits what it began itself: the transaction is to be the caller's.
            database.begin()
        act(config(database, **attributes))
        return
    with _connecting(database) as engine:
        with engine.begin() as connection:
            act(config(connection, **attributes))
        with engine.begin() as connection:
            connection.execute(text(FIRST_STATISTICS))


@contextlib.contextmanager
def _connecting(database: str | URL) -> Generator[Engine]:
    try:
        yield create_engine(normalise_url(database), poolclass=NullPool, connect_args=CLIENT_ENCODING)
    except exc.DBAPIError as error:
        raise told(error, migrating=True) from error


def revision(database: str | URL) -> str | None:
    """The revision of a database; None when it was never migrated.

    Raises:
        DatabaseUnavailable: It cannot be reached.
    """
    with _connecting(database) as engine, engine.connect() as connection:
        return current(connection)
