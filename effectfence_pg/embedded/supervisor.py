"""Watch over one private server in a process of its own, which outlives whoever started it.

The process never runs the package's ``__init__`` (see ``server.BOOT``): SQLAlchemy and pydantic would cost every idle
supervisor fifty megabytes. So this module, ``folder`` and ``postmaster`` import the standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time

from effectfence_pg.embedded.folder import await_lock, try_lock, unlock
from effectfence_pg.embedded.postmaster import Plan, Postmaster, ServerFailedError

POLL_SECONDS = 0.1
SAMPLE_SECONDS = 15.0
ORPHAN_SECONDS = 15.0
REVIVALS_LIMIT = 20
SESSIONS = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()),
       (SELECT coalesce(sum(sessions), 0)::bigint FROM pg_stat_database WHERE datname <> 'postgres')
"""


class Supervisor:
    """One server, and what keeps it alive: a user, or the wish to be kept and a connection now and then."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.postmaster = Postmaster(plan, 0)
        self.folder = self.postmaster.folder
        self.users = self.folder.open_lock("users")
        self.terminated = False
        self.revivals = 0
        self.last_use = self.last_sample = time.monotonic()
        self.sessions: int | None = None

    def run(self) -> None:
        """Start the server and say so, watch it, end it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._terminate)
        locks = [self.folder.open_lock(name) for name in ("supervisor", "server")]
        try:
            for lock in locks:
                await_lock(lock, time.monotonic() + ORPHAN_SECONDS)
            self.postmaster.server_lock = locks[1]
            self.postmaster.launch()
            say({"port": self.postmaster.port})
            while not self._done():
                time.sleep(POLL_SECONDS)
        except (ServerFailedError, OSError) as error:
            say({"error": str(error)})
        finally:
            self._end()

    def _terminate(self, *_: object) -> None:
        self.terminated = True

    def _done(self) -> bool:
        if self.terminated or self.folder.stop.exists() or self._unwanted():
            return True
        if self.folder.restart.exists():
            self.postmaster.halt(signal.Signals[self.folder.restart.read_text(encoding="utf-8")])
            self.postmaster.launch()
            self.folder.restart.unlink(missing_ok=True)
        elif self.postmaster.status is not None:
            # Status 0: somebody stopped it with pg_ctl. Otherwise it was killed, and recovers like any Postgres.
            if self.postmaster.status == 0 or self.revivals >= REVIVALS_LIMIT:
                return True
            self.revivals += 1
            self.postmaster.launch()
        return False

    def _unwanted(self) -> bool:
        """No user, and no wish to be kept, or no connection for as long as the wish says.

        On True the users' lock stays taken: whoever comes now waits for the end and starts a server anew.
        """
        now = time.monotonic()
        if not try_lock(self.users):
            self.last_use = now
            return False
        try:
            keep_seconds = float(self.folder.keep.read_text(encoding="utf-8"))
            wished_seconds_ago = max(time.time() - self.folder.keep.stat().st_mtime, 0.0)
        except (OSError, ValueError):
            return True
        unlock(self.users)
        idle_seconds = min(now - self.last_use, wished_seconds_ago)
        overdue = idle_seconds >= keep_seconds
        if (overdue or now - self.last_sample >= SAMPLE_SECONDS) and self._connected():
            self.last_use = now
            return False
        return overdue and try_lock(self.users)

    def _connected(self) -> bool:
        """Whether anybody is connected, or has been since this was last asked."""
        self.last_sample = time.monotonic()
        sys.path[:] = self.plan.python_path
        import psycopg  # noqa: PLC0415  only servers that are kept need it

        try:
            with psycopg.connect(
                host="127.0.0.1",
                port=self.postmaster.port,
                dbname="postgres",
                user="effectfence",
                password=self.folder.password.read_text(encoding="utf-8"),
                connect_timeout=5,
            ) as connection:
                present, sessions = connection.execute(SESSIONS).fetchone() or (0, 0)
        except (psycopg.Error, OSError):
            return False
        came = sessions != self.sessions  # the first time there is nothing to compare with, which counts as used
        self.sessions = sessions
        return bool(present) or came

    def _end(self) -> None:
        self.postmaster.halt(signal.SIGINT)
        # The wish to be kept stays: somebody may have written it for the server that comes next.
        for file in (self.folder.state, self.folder.restart):
            file.unlink(missing_ok=True)
        if self.plan.temporary:
            shutil.rmtree(self.folder.path, ignore_errors=True)


def say(answer: dict[str, object]) -> None:
    """Answer the process that started this one: one line, then the end of the stream."""
    if sys.stdout.closed:
        return
    print(json.dumps(answer), flush=True)  # noqa: T201
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    sys.stdout.close()


def main() -> None:
    """Leave the process that started this one, then watch."""
    plan = Plan.from_json(sys.argv[1])
    if os.fork():
        os._exit(0)  # the starter reaps this half at once, so nobody is left with a zombie
    Supervisor(plan).run()
