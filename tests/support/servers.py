"""The PostgreSQL of a test run: the one that was named, else a container, else a private server."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import shutil
import socket
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from effectfence_pg.embedded import private_server
from effectfence_pg.settings import normalise_url

TEST_VARIABLE = "EFFECTFENCE_TEST_DATABASE_URL"
IMAGE = "postgres:17-alpine"
DOCKER_SECONDS = 2
COPIES_FILES = 150000
"""The version from which on a server can be told how to copy a database."""


def libpq_url(url: str) -> str:
    """The URL as psycopg itself takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def reachable_directory() -> Path:
    """A new directory that the account of the server can enter, for root runs the server as another user."""
    path = Path(tempfile.mkdtemp(prefix="effectfence-tests-", dir="/tmp"))
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return path


@contextlib.contextmanager
def occupied(port: int) -> Iterator[None]:
    """Somebody else listens on this loopback port for the `with` statement."""
    with socket.socket() as taken:
        # What the port's last user has left in TIME_WAIT does not count.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


@contextlib.contextmanager
def scratch_directory():
    """Such a directory for a `with` statement."""
    path = reachable_directory()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class ServerLog:
    """The server's log, for tests that look for what Postgres says (40P01, for example)."""

    path: Path

    def mark(self) -> int:
        """The end of the log as it is now."""
        return self.path.stat().st_size

    def since(self, mark: int = 0) -> str:
        """What was written after a mark."""
        with self.path.open("rb") as file:
            file.seek(mark)
            return file.read().decode(errors="replace")


class Databases:
    """Databases of one run on one server, named so that runs never meet."""

    def __init__(self, admin_url: str, log: ServerLog | None = None) -> None:
        self.admin_url = normalise_url(admin_url).render_as_string(hide_password=False)
        self.log = log
        self.run = uuid.uuid4().hex[:10]
        self.count = 0

    def version(self) -> str:
        with self._admin() as connection:
            row = connection.execute("SELECT current_setting('server_version')").fetchone()
        return row[0].split()[0]

    def create(self, template: str | None = None) -> str:
        """Create a database, empty or as a copy of the one with the URL `template`, and return its URL."""
        self.count += 1
        name = f"effectfence_test_{self.run}_{self.count}"
        source = make_url(template).database if template else "template0"
        create = "CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        with self._admin() as connection:
            if self.log is not None and connection.info.server_version >= COPIES_FILES:
                # On a server that does not wait for the disk a seventh of what a copy through the log takes.
                create += " STRATEGY file_copy"
            connection.execute(sql.SQL(create).format(sql.Identifier(name), sql.Identifier(source or "template0")))
        return make_url(self.admin_url).set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        with self._admin() as connection:
            name = sql.Identifier(make_url(url).database or "")
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(libpq_url(self.admin_url), autocommit=True, connect_timeout=10)


class TestServer:
    """Chooses at once, so that the header can say what, and starts when the first test needs it."""

    __test__ = False

    def __init__(self) -> None:
        self.given = os.environ.get(TEST_VARIABLE)
        self.source = "given" if self.given else "container" if docker_answers() else "private"
        self.used: Databases | None = None
        self.exits = contextlib.ExitStack()

    def describe(self) -> str:
        if self.source == "given":
            what = make_url(self.given).render_as_string(hide_password=True) + f" ({TEST_VARIABLE})"
        else:
            what = {"container": f"container of {IMAGE}", "private": "private server, made for this run"}[self.source]
        return f"{what}, PostgreSQL {self.used.version()}" if self.used else what

    def databases(self) -> Databases:
        if self.used is None:
            self.used = self._start()
        return self.used

    def close(self) -> None:
        self.used = None
        self.exits.close()

    def _start(self) -> Databases:
        if self.source == "given":
            return Databases(self.given or "")
        if self.source == "container":
            with contextlib.suppress(Exception):  # a daemon that answers may still be unable to pull the image
                return Databases(self.exits.enter_context(container_url()))
            self.source = "private"
        server = self.exits.enter_context(private_server(temporary=True))
        # What survives a crash of the machine is not tested here, and thousands of small transactions wait for the disk.
        with psycopg.connect(libpq_url(server.url), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER SYSTEM SET full_page_writes = off")
            connection.execute("SELECT pg_reload_conf()")
        return Databases(server.url, ServerLog(server.folder.log))


def docker_answers() -> bool:
    """Whether a Docker daemon answers within a moment. Asked by hand: the client library leaves sockets open."""
    host = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    if host.scheme == "unix":
        family, address = socket.AF_UNIX, host.path
    elif host.scheme == "tcp" and host.hostname:
        family, address = socket.AF_INET, (host.hostname, host.port or 2375)
    else:
        return False
    with socket.socket(family) as probe:
        probe.settimeout(DOCKER_SECONDS)
        try:
            probe.connect(address)
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(64)
        except OSError:
            return False


@contextlib.contextmanager
def container_url():
    """The URL of a PostgreSQL in a container."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.postgres import PostgresContainer

        container = PostgresContainer(IMAGE, driver="psycopg").with_command("postgres -c max_connections=200")
        container.start()
        gc.collect()  # what the client library left open is reported here, and not in a test
    try:
        yield container.get_connection_url()
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            container.stop()
            gc.collect()
