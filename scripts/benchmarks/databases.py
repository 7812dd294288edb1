"""Where to measure: a database of the run's own, on a private server or on a given one, and gone afterwards."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from effectfence_pg.embedded import private_server
from effectfence_pg.migrate import downgrade, upgrade
from effectfence_pg.settings import normalise_url

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from benchmarks.results import Scale

CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Bench:
    """What a group needs: a migrated database that is the run's own, and how much to do."""

    url: URL
    scale: Scale
    names: Iterator[int] = field(default_factory=itertools.count)

    def url_for(self, synchronous_commit: str) -> URL:
        """The URL of connections with this setting."""
        options = f"{self.url.query.get('options', '')} -csynchronous_commit={synchronous_commit}".strip()
        return self.url.update_query_dict({"options": options})

    def connect(self, synchronous_commit: str = "on") -> psycopg.Connection[Any]:
        """A connection of the driver itself, in autocommit."""
        return connect(self.url_for(synchronous_commit))

    def fresh_names(self, prefix: str, count: int) -> list[str]:
        """Names that this run has not used."""
        return [f"{prefix}-{next(self.names):08d}" for _ in range(count)]

    def start_over(self) -> None:
        """Empty tables: the schema is dropped and made again."""
        downgrade(self.url, drop_certificates=True)
        upgrade(self.url)

    def analyze(self) -> None:
        """What autovacuum does within a minute or so: after it, the planner knows how large the tables are."""
        with self.connect() as connection:
            connection.execute("ANALYZE")

    def say(self, text: str) -> None:
        """One line of progress."""
        say(text)


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def connect(url: URL) -> psycopg.Connection[Any]:
    """Connect with the driver itself, in autocommit."""
    address: dict[str, Any] = {**url.translate_connect_args(username="user", database="dbname"), **url.query}
    return psycopg.connect(**{"connect_timeout": CONNECT_SECONDS, **address}, autocommit=True)


@contextlib.contextmanager
def own_database(database_url: str | None, scale: Scale) -> Generator[Bench]:
    """A new migrated database on the given server, else on a private one with its defaults: fsync is on."""
    with contextlib.ExitStack() as exits:
        if database_url is None:
            say("starting a private server ...")
            admin = make_url(exits.enter_context(private_server(temporary=True)).url)
        else:
            admin = normalise_url(database_url)
        name = f"effectfence_bench_{secrets.token_hex(5)}"
        with connect(admin) as connection:
            create = "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
            connection.execute(sql.SQL(create).format(sql.Identifier(name)))
        exits.callback(_drop, admin, name)
        url = admin.set(database=name)
        upgrade(url)
        yield Bench(url, scale)


def _drop(admin: URL, name: str) -> None:
    with connect(admin) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class ServerCpu:
    """The CPU time of backends, where the kernel tells it: on Linux, with the server on this machine."""

    def __init__(self, pids: list[int]) -> None:
        """Take the process numbers that the server named."""
        self.pids = pids
        self._files = [Path("/proc", str(pid), "schedstat") for pid in pids]
        self.known = bool(pids) and all(_is_backend(file.parent) for file in self._files)

    def nanoseconds(self) -> int:
        """What the backends have used so far; 0 where nobody knows."""
        return sum(int(file.read_bytes().split()[0]) for file in self._files) if self.known else 0


def _is_backend(process: Path) -> bool:
    """The numbers of a server elsewhere may be those of any process here."""
    try:
        (process / "schedstat").read_bytes()
        return (process / "comm").read_text(encoding="utf-8").startswith("postgres")
    except OSError:
        return False
