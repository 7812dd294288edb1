"""``db``: the private server, for people, and migrations. ``db start`` and ``db url`` keep it; everything else uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import typer

from effectfence_pg.cli.databases import described, tell_start
from effectfence_pg.cli.output import (
    EXIT_NO,
    DatabaseUrlOption,
    JsonOption,
    answer,
    progress,
    reporting,
)
from effectfence_pg.embedded import PrivateServer, open_database, own_server, private_server
from effectfence_pg.errors import DatabaseUnavailable
from effectfence_pg.settings import DATABASE_VARIABLE, GivenDatabase, given_database, normalise_url
from effectfence_pg.sqlstates import one_line

if TYPE_CHECKING:
    from sqlalchemy import URL

KEEP_SECONDS = 600.0

app = typer.Typer(help="Migrate a database; start, stop and find the private PostgreSQL server.", no_args_is_help=True)


@app.command()
def start(database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Start the private server; it stays until `db stop`, or ten minutes without a connection."""
    with reporting(as_json):
        server = _wanted(database_url, keep_seconds=KEEP_SECONDS)
        if isinstance(server, GivenDatabase):
            facts = _given_facts(server)
            answer(as_json, facts, f"{facts['url']} was given ({server.source}) and answers; nothing to start")
            return
        with _started(server):
            facts = _private_facts(server, running=True)
        answer(as_json, facts, f"PostgreSQL {server.version} runs on port {server.port}, data in {server.folder.path}")


@app.command()
def stop(database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Stop the private server, also when others use it. Its data stay."""
    with reporting(as_json):
        server = _wanted(database_url)
        if isinstance(server, GivenDatabase):
            if server.source == "flag":
                raise typer.BadParameter("only the private server can be stopped", param_hint="--database-url")
            progress.print(f"{DATABASE_VARIABLE} is not ours to stop; stopping the private server", soft_wrap=True)
            server = private_server()
        stopped = server.shut_down()
        text = "stopped" if stopped else "the private server was not running"
        answer(as_json, {"stopped": stopped, "data_directory": str(server.folder.path)}, text)


@app.command()
def status(database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Say which database is used and whether it answers. Exit status 1: the private server is not running."""
    with reporting(as_json):
        server = _wanted(database_url)
        if isinstance(server, GivenDatabase):
            facts = _given_facts(server)
            answer(as_json, facts, f"{facts['url']} ({server.source}): PostgreSQL {facts['version']}")
            return
        running = server.running
        facts = _private_facts(server, running=running)
        state = f"runs on port {server.port}" if running else "is not running"
        answer(as_json, facts, f"the private server (PostgreSQL {facts['version']}, {server.folder.path}) {state}")
    if not running:
        raise typer.Exit(EXIT_NO)


@app.command()
def url(database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Print one line, a `postgresql+psycopg://` URL: the one that was given, else the private server's.

    The private server is started and migrated when needed. It stays until `db stop`, or ten minutes without a
    connection, and comes back at the same address. A database that was given is left as it is.
    """
    with reporting(as_json):
        server = _wanted(database_url, keep_seconds=KEEP_SECONDS)
        if isinstance(server, GivenDatabase):
            text = server.url.render_as_string(hide_password=False)
            answer(as_json, {"source": server.source, "url": text}, text)
            return
        from effectfence_pg import migrate  # noqa: PLC0415  alembic is slow to import, and not every command needs it

        with _started(server):
            migrate.upgrade(server.url)
            answer(as_json, {"source": "private", "url": server.url}, server.url)


@app.command()
def upgrade(database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Migrate a database to the schema that this version works with: the one that was given, else the private server's."""
    with reporting(as_json), open_database(database_url, starting=tell_start) as database:
        from effectfence_pg import migrate  # noqa: PLC0415  alembic is slow to import, and not every command needs it

        before = migrate.revision(database.url)
        migrate.upgrade(database.url)
        after = migrate.revision(database.url)
        facts = {
            "source": database.source,
            "url": _hidden(normalise_url(database.url)),
            "before": before,
            "after": after,
        }
        was = "was there already" if before == after else f"before: {before or 'never migrated'}"
        answer(as_json, facts, f"{described(database)} is at schema revision {after} ({was})")


def _wanted(database_url: str | None, *, keep_seconds: float | None = None) -> GivenDatabase | PrivateServer:
    """The database that was given, unless it is the private server's own, as after `export ...="$(... db url)"`."""
    given = given_database(database_url)
    if given is None:
        return private_server(keep_seconds=keep_seconds)
    return own_server(given.url, keep_seconds=keep_seconds) or given


def _started(server: PrivateServer) -> PrivateServer:
    if not server.running:
        tell_start(server)
    return server


def _private_facts(server: PrivateServer, *, running: bool) -> dict[str, Any]:
    return {
        "source": "private",
        "running": running,
        "url": _hidden(normalise_url(server.url)) if running else None,
        "version": server.version if running else server.site.binaries.version,
        "port": server.port if running else None,
        "data_directory": str(server.folder.path),
    }


def _given_facts(given: GivenDatabase) -> dict[str, Any]:
    target = given.url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(target, connect_timeout=10) as connection:
            version = connection.info.parameter_status("server_version") or ""
    except psycopg.Error as error:
        raise DatabaseUnavailable(reason=one_line(error)) from error
    return {"source": given.source, "running": True, "url": _hidden(given.url), "version": version.split()[0]}


def _hidden(url: URL) -> str:
    return url.render_as_string(hide_password=True)
