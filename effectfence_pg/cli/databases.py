"""The database of a command: found, started when it is the private server's, and named on stderr before it is used."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sqlalchemy import make_url

from effectfence_pg.cli.output import progress
from effectfence_pg.embedded import PrivateServer, open_database
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Generator

    from effectfence_pg.embedded import Database

NAMED_BY = {"flag": "--database-url", "environment": DATABASE_VARIABLE, "private": "the private server"}


@contextlib.contextmanager
def usable_database(flag: str | None, *, make: bool = True, use: str = "using") -> Generator[str]:
    """The URL of a database to use. The private server is started and migrated; one that was given is left as it is.

    Args:
        flag: What --database-url says.
        make: Whether a private server may be made when none is there. For a command that looks at what is on record, an
            empty database of our own making would be a wrong answer.
        use: What is done with it, for people.
    """
    with open_database(flag, make=make, starting=tell_start) as database:
        progress.print(f"{use} {described(database)}", soft_wrap=True, markup=False)
        if database.server is not None:
            from effectfence_pg.migrate import upgrade  # noqa: PLC0415  alembic is slow to import, and only this needs it

            upgrade(database.url)
        yield database.url


def tell_start(server: PrivateServer) -> None:
    """Say why the next second, or the next ten, nothing is seen to happen."""
    slow = "" if server.has_data else "; its first start takes some seconds"
    progress.print(f"starting the private PostgreSQL in {server.folder.path}{slow} ...", soft_wrap=True, markup=False)


def described(database: Database) -> str:
    """A database for people, without anything that a URL keeps secret."""
    url = make_url(database.url)
    host = url.host or url.query.get("host")
    where = f" on {host}:{url.port or url.query.get('port') or 5432}" if isinstance(host, str) else ""
    return f"database {url.database or url.username or 'of the default name'}{where} ({NAMED_BY[database.source]})"
