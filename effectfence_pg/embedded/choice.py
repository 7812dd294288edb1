"""Which database a command works on: the flag's, the environment's, or the private server's."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from typing import TYPE_CHECKING, Literal

from effectfence_pg.embedded.accounts import server_account
from effectfence_pg.embedded.cluster import USER
from effectfence_pg.embedded.errors import EmbeddedUnavailable, NoDatabase
from effectfence_pg.embedded.launching import DATABASE
from effectfence_pg.embedded.places import state_directory
from effectfence_pg.embedded.server import PrivateServer, private_server
from effectfence_pg.settings import given_database

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sqlalchemy import URL

Source = Literal["flag", "environment", "private"]
LOOPBACK = ("127.0.0.1", "localhost")


@dataclasses.dataclass(frozen=True)
class Database:
    """A database to work on. `server` is the private server when it is that one's, however it was named."""

    url: str
    source: Source
    server: PrivateServer | None = None


def own_server(url: URL, *, keep_seconds: float | None = None) -> PrivateServer | None:
    """The private server whose URL this is, told by the password that nobody chose: its port may have changed."""
    if (url.username, url.database) != (USER, DATABASE) or url.host not in LOOPBACK or not url.password:
        return None
    for file in _passwords():
        with contextlib.suppress(OSError):
            if secrets.compare_digest(file.read_bytes(), str(url.password).encode()):
                return PrivateServer(file.parent, keep_seconds=keep_seconds)
    return None


def _passwords() -> list[Path]:
    """Those of every private server that was ever made here, one for each major version."""
    try:
        return list(state_directory(server_account()).glob("postgresql-*/password"))
    except (EmbeddedUnavailable, OSError):
        return []


@contextlib.contextmanager
def open_database(
    database_url: str | None = None,
    *,
    keep_seconds: float | None = None,
    make: bool = True,
    starting: Callable[[PrivateServer], None] = lambda _server: None,
) -> Generator[Database]:
    """Give the database to use. A private server is kept up until the ``with`` statement ends.

    Args:
        database_url: What the flag says.
        keep_seconds: How long a private server stays without users.
        make: Whether a private server may be made when nothing is given and there is none.
        starting: Told of a private server that has to be started first.

    Raises:
        InvalidDatabaseUrl: The URL that was given is none of PostgreSQL's.
        NoDatabase: None was given, there is no private server, and none is to be made.
        EmbeddedUnavailable: None was given, and there is no private server to be had.
    """
    given = given_database(database_url)
    if given is not None:
        server = own_server(given.url, keep_seconds=keep_seconds)
        if server is None:
            yield Database(given.url.render_as_string(hide_password=False), given.source)
            return
    else:
        # Files first: to say that nothing is there, no programs of PostgreSQL are needed, and no folder is made.
        if not make and not _passwords():
            raise NoDatabase
        server = private_server(keep_seconds=keep_seconds)
        if not make and not server.has_data:
            raise NoDatabase
    if not server.running:
        starting(server)
    with server:
        yield Database(server.url, "private" if given is None else given.source, server)
