"""Which database a command works on: the flag's, the environment's, or the private server's."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Literal

from effectfence_pg.embedded.server import PrivateServer, private_server
from effectfence_pg.settings import given_database

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclasses.dataclass(frozen=True)
class Database:
    """A database to work on. `server` is the private server when that is the source."""

    url: str
    source: Literal["flag", "environment", "private"]
    server: PrivateServer | None = None


@contextlib.contextmanager
def open_database(database_url: str | None = None, *, keep_seconds: float | None = None) -> Generator[Database]:
    """Give the database to use. A private server is kept up until the ``with`` statement ends.

    Raises:
        InvalidDatabaseUrl: The URL that was given is none of PostgreSQL's.
        EmbeddedUnavailable: None was given, and there is no private server to be had.
    """
    given = given_database(database_url)
    if given is not None:
        yield Database(given.url.render_as_string(hide_password=False), given.source)
        return
    with private_server(keep_seconds=keep_seconds) as server:
        yield Database(server.url, "private", server)
