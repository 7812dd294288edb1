"""Where migrations run: a URL that was given, or the caller's own connection and transaction."""

import contextlib
import logging.config
import sys
from collections.abc import Generator
from typing import Any

from alembic import context
from sqlalchemy import URL, NullPool, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from effectfence_pg.errors import FenceError
from effectfence_pg.settings import CLIENT_ENCODING, given_database
from effectfence_pg.sql.statistics import FIRST_STATISTICS, LOCK_KEY
from effectfence_pg.sql.tables import SCHEMA, metadata
from effectfence_pg.sqlstates import one_line


def database_url() -> URL:
    """The flag, then the environment; the tool that calls us has its own flag."""
    given = given_database(context.get_x_argument(as_dictionary=True).get("url"))
    configured = context.config.get_main_option("sqlalchemy.url")
    if given is None and configured:
        given = given_database(configured)
    if given is None:
        sys.exit("no database: set EFFECTFENCE_DATABASE_URL or pass -x url=postgresql://...")
    return given.url


@contextlib.contextmanager
def one_line_errors() -> Generator[None]:
    """What an operator can mend is said in a line, as alembic does with its own errors; programs get the error itself."""
    try:
        yield
    except (FenceError, DBAPIError) as error:
        if context.config.cmd_opts is None:
            raise
        sys.exit(f"FAILED: {error}. {error.advice}" if isinstance(error, FenceError) else f"FAILED: {one_line(error)}")


def configure(**options: Any) -> None:
    """One place for the options that online and offline share."""
    context.configure(
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=lambda name, kind, _parents: kind != "schema" or name == SCHEMA,
        compare_type=True,
        compare_server_default=True,
        transaction_per_migration=False,
        **options,
    )


def run_on(connection: Connection) -> None:
    """Migrate on this connection, in its transaction when it has one."""
    configure(connection=connection)
    with context.begin_transaction():
        # Serialises rivals and gives the version table its schema; both end with the transaction.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        context.run_migrations()


def run_online() -> None:
    """The caller's connection when there is one, else one of our own."""
    given = context.config.attributes.get("connection")
    if given is not None:
        run_on(given)
        return
    engine = create_engine(database_url(), poolclass=NullPool, connect_args=CLIENT_ENCODING)
    with engine.connect() as connection:
        # For a role called like our schema it is the default one, whose tables would be compared without a schema.
        connection.execute(text("SET search_path = public"))
        connection.dialect.default_schema_name = "public"
        connection.commit()
        run_on(connection)
        connection.commit()
        connection.execute(text(FIRST_STATISTICS))
        connection.commit()


def run_offline() -> None:
    """Print the SQL instead of running it."""
    configure(url="postgresql+psycopg://", literal_binds=True, dialect_opts={"paramstyle": "named"})
    with context.begin_transaction():
        context.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        context.run_migrations()
    # After COMMIT: a statement that is a transaction of its own.
    context.execute(FIRST_STATISTICS)


if context.config.config_file_name and not context.config.attributes.get("quiet"):
    logging.config.fileConfig(context.config.config_file_name, disable_existing_loggers=False)
if context.is_offline_mode():
    run_offline()
else:
    with one_line_errors():
        run_online()
