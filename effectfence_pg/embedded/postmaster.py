"""One postgres process: how it is started, when it is ready, how it ends. Standard library only, as the supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from effectfence_pg.embedded.folder import Folder

SHUTDOWN_SECONDS = 30.0
LOG_LIMIT_BYTES = 10_000_000
LOG_TAIL_BYTES = 2_000
PR_SET_PDEATHSIG = 1
STATUS_LINE = 7
# What another try mends: the port was taken in between, or the backends of a killed postmaster are still ending.
TRANSIENT = ("Address already in use", "pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class ServerFailedError(Exception):
    """Postgres ended, or was not ready in time. The message is the end of its log."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What the supervisor is told to run, as one JSON argument."""

    folder: str
    postgres: str
    options: tuple[str, ...]
    environment: dict[str, str]
    user: int | None
    group: int | None
    python_path: tuple[str, ...]
    start_seconds: float
    temporary: bool

    def to_json(self) -> str:
        """Write the argument."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read the argument."""
        fields = json.loads(text)
        return cls(**fields | {name: tuple(fields[name]) for name in ("options", "python_path")})


class Postmaster:
    """The postgres of one folder, a child of this process."""

    def __init__(self, plan: Plan, server_lock: int) -> None:
        self.plan = plan
        self.folder = Folder(Path(plan.folder))
        self.server_lock = server_lock
        self.port = 0
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self.child.poll() if self.child else 0

    def launch(self) -> None:
        """Start until it accepts connections, on the port that it had, for clients hold on to it.

        A new start gives way when something else listens there; a restart does not.
        """
        deadline = time.monotonic() + self.plan.start_seconds
        known = self.port
        while True:
            self.port = known or self._usual_port()
            self._rotate_log()
            start = self.folder.log.stat().st_size
            self.child = self._spawn()
            try:
                self._await_ready(self.child, deadline, start)
                break
            except ServerFailedError as error:
                if time.monotonic() > deadline or not any(reason in str(error) for reason in TRANSIENT):
                    raise
                time.sleep(0.1)
        state = {"port": self.port, "supervisor": os.getpid(), "postmaster": self.child.pid}
        _replace(self.folder.port, str(self.port))
        _replace(self.folder.state, json.dumps(state))

    def halt(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end; a server that does not heed it in time is killed."""
        if self.child is None:
            return
        for attempt in (number, signal.SIGQUIT, signal.SIGKILL):
            if self.child.poll() is None:
                self.child.send_signal(attempt)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(SHUTDOWN_SECONDS)

    def _usual_port(self) -> int:
        """The port of the time before, unless it is taken."""
        try:
            port = int(self.folder.port.read_text(encoding="utf-8"))
            return port if is_free(port) else free_port()
        except (OSError, ValueError):
            return free_port()

    def _rotate_log(self) -> None:
        with self.folder.log.open("ab") as log:
            large = log.tell() > LOG_LIMIT_BYTES
        if large:
            self.folder.log.replace(self.folder.log.with_suffix(".log.1"))
            self.folder.log.touch(0o600)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.folder.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                [self.plan.postgres, "-D", str(self.folder.data), "-p", str(self.port), *self.plan.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self.plan.environment,
                pass_fds=(self.server_lock,),
                user=self.plan.user,
                group=self.plan.group,
                extra_groups=None if self.plan.user is None else (),
                umask=0o077,
                # The supervisor has one thread, so running Python between fork and exec is safe.
                preexec_fn=functools.partial(end_with, os.getpid()),  # noqa: PLW1509
            )

    def _await_ready(self, child: subprocess.Popen[bytes], deadline: float, log_start: int) -> None:
        while not self._ready(child.pid):
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                child.wait()
                with self.folder.log.open("rb") as log:
                    log.seek(log_start)
                    tail = log.read()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
                raise ServerFailedError(tail or f"postgres ended with status {child.returncode}")
            time.sleep(0.01)

    def _ready(self, pid: int) -> bool:
        """Read the status line, as pg_ctl does. The pid must be the child's: an older file says nothing."""
        try:
            lines = (self.folder.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > STATUS_LINE and lines[0].strip() == str(pid) and lines[STATUS_LINE].strip() == "ready"


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether postgres can listen on this loopback port; connections that have ended there do not hinder it."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, OverflowError):
        return False
    return True


def _replace(file: Path, text: str) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def end_with(parent: int) -> None:
    """In the child: a killed supervisor cannot stop its server, so the kernel does. Elsewhere the next start does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
