"""Join the server that runs in a folder, or launch one. Call with the folder's start lock held."""

from __future__ import annotations

import dataclasses
import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from effectfence_pg.embedded.accounts import Account, environment
from effectfence_pg.embedded.cluster import SERVER_OPTIONS, USER, discard_foreign_pid_file, make_cluster
from effectfence_pg.embedded.errors import EmbeddedUnavailable
from effectfence_pg.embedded.folder import POLL_SECONDS, Folder
from effectfence_pg.embedded.postmaster import Plan

if TYPE_CHECKING:
    from effectfence_pg.embedded.binaries import Binaries

DATABASE = "effectfence"
ORPHAN_SECONDS = 10.0
# Run the supervisor's modules without the __init__ of their packages, which import a hundred times as much.
BOOT = """
import sys, types
for name, path in zip(("effectfence_pg", "effectfence_pg.embedded"), sys.argv[2:]):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [path]
from effectfence_pg.embedded.supervisor import main
main()
"""


@dataclasses.dataclass(frozen=True)
class Site:
    """A folder, the programs that serve it, and the account that runs them."""

    folder: Folder
    binaries: Binaries
    account: Account
    temporary: bool = False


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a server that is alive said."""

    port: int
    version: str


def join_or_launch(site: Site, deadline: float) -> Answer:
    """Return a server that has answered. Raise TimeoutError at the deadline of the monotonic clock."""
    orphan_since: float | None = None
    while True:
        if site.folder.locked("supervisor"):
            orphan_since = None
            if answer := ask(site):
                return answer
        elif site.folder.locked("server"):
            # Its supervisor was killed. Linux tells the server then; elsewhere, or if it hangs, this start does.
            orphan_since = orphan_since or time.monotonic()
            if time.monotonic() - orphan_since > ORPHAN_SECONDS:
                _pg_ctl_stop(site)
        else:
            launch(site, deadline)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server of {site.folder.path} did not answer")
        time.sleep(POLL_SECONDS)


def launch(site: Site, deadline: float) -> None:
    """Start a supervisor, and return when its server accepts connections."""
    make_cluster(site.folder, site.binaries, site.account, temporary=site.temporary)
    discard_foreign_pid_file(site.folder.data)
    plan = Plan(
        folder=str(site.folder.path),
        postgres=site.binaries.program("postgres"),
        options=tuple(part for name, value in SERVER_OPTIONS.items() for part in ("-c", f"{name}={value}")),
        environment=environment(),
        user=site.account.user,
        group=site.account.group,
        python_path=tuple(path for path in sys.path if Path(path).is_absolute()),
        start_seconds=max(deadline - time.monotonic(), 1.0),
        temporary=site.temporary,
    )
    try:
        said = _start_supervisor(plan, deadline)
    except (FileNotFoundError, PermissionError) as error:
        said = {"error": f"{sys.executable}: {error}"}
    failure = said.get("error")
    if failure is not None:
        raise EmbeddedUnavailable(missing=f"the server did not start: {failure}", remedy=f"See {site.folder.path}.")


def _start_supervisor(plan: Plan, deadline: float) -> dict[str, object]:
    """Start it, and read what it says: that it serves, or why it cannot."""
    package = Path(__file__).parent
    with (
        Folder(Path(plan.folder)).supervisor_log.open("ab") as log,
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-c", BOOT, plan.to_json(), str(package.parent), str(package)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            start_new_session=True,
            umask=0o077,
        ) as starter,
    ):
        if (
            starter.stdout is None
            or not select.select([starter.stdout], [], [], max(deadline - time.monotonic(), 0))[0]
        ):
            raise TimeoutError("the server was not ready")
        line = starter.stdout.readline()
    return json.loads(line) if line else {"error": "its supervisor ended; supervisor.log says why"}


def ask(site: Site) -> Answer | None:
    """Connect, and see that it is this folder's server that answers. Its database is made when it is missing."""
    try:
        port = int(json.loads(site.folder.state.read_text(encoding="utf-8"))["port"])
        with connect(site.folder, port) as connection:
            directory, version, complete = connection.execute(
                "SELECT current_setting('data_directory'), current_setting('server_version'),"
                " EXISTS (SELECT FROM pg_database WHERE datname = %s)",
                [DATABASE],
            ).fetchone() or ("", "", False)
            if Path(directory).resolve() != site.folder.data.resolve():
                return None
            if not complete:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except (OSError, ValueError, KeyError, psycopg.Error):
        return None
    return Answer(port, version.split()[0])


def connect(folder: Folder, port: int) -> psycopg.Connection[tuple[str, str, bool]]:
    """Connect as the superuser to the maintenance database, in autocommit."""
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user=USER,
        password=folder.password.read_text(encoding="utf-8"),
        dbname="postgres",
        connect_timeout=5,
        autocommit=True,
    )


def _pg_ctl_stop(site: Site) -> None:
    # Its output must not be a pipe of ours: what it starts would hold the pipe open.
    stop = ["stop", "-D", str(site.folder.data), "-m", "immediate", "-t", "10", "-s"]
    site.account.run([site.binaries.program("pg_ctl"), *stop])
