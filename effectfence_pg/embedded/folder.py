"""The files of one private server, and the locks by which its processes agree.

Four locks say who is there. The kernel holds them, so they end with their holders, however those end:

- ``users.lock``: every user holds it shared for as long as it wants the server.
- ``supervisor.lock``: held by the supervisor while it lives.
- ``server.lock``: held by the supervisor *and* by postgres and its backends, which inherit it. Whoever can take it
  knows that nothing of this server is alive, which no pid file can say.
- ``start.lock``: users take turns at starting and stopping.

Three files carry wishes to the supervisor: ``keep`` (the seconds to stay without a connection), ``stop``, ``restart``.

The supervisor imports this module: standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

POLL_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Folder:
    """One server's folder. Everything that this package changes is in it."""

    path: Path

    @property
    def data(self) -> Path:
        """The cluster's data directory."""
        return self.path / "data"

    @property
    def password(self) -> Path:
        """The superuser's password, readable by the owner only."""
        return self.path / "password"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.path / "server.log"

    @property
    def supervisor_log(self) -> Path:
        """Where a traceback of the supervisor would be."""
        return self.path / "supervisor.log"

    @property
    def state(self) -> Path:
        """Port and process ids of the server that runs: a hint, proved by connecting."""
        return self.path / "server.json"

    @property
    def port(self) -> Path:
        """The port that its URL names: kept across starts, because that URL stands in somebody's environment."""
        return self.path / "port"

    @property
    def keep(self) -> Path:
        """The wish to be kept without users, in seconds."""
        return self.path / "keep"

    @property
    def stop(self) -> Path:
        """The wish that the server ends now."""
        return self.path / "stop"

    @property
    def restart(self) -> Path:
        """The wish to be restarted, by the signal it names."""
        return self.path / "restart"

    def open_lock(self, name: str) -> int:
        """Open one of the locks: ``users``, ``supervisor``, ``server``, ``start``."""
        return os.open(self.path / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def locked(self, name: str) -> bool:
        """Whether somebody holds this lock."""
        try:
            descriptor = os.open(self.path / f"{name}.lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not try_lock(descriptor, shared=name != "users")
        finally:
            os.close(descriptor)

    def await_free(self, name: str, deadline: float) -> None:
        """Wait until nobody holds the lock, or raise TimeoutError."""
        while self.locked(name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the private server's {name} is still there")
            time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def turn(self, deadline: float) -> Generator[None]:
        """Hold the start lock."""
        descriptor = self.open_lock("start")
        try:
            await_lock(descriptor, deadline)
            yield
        finally:
            os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock when it is free."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give the lock back and keep the file open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def await_lock(descriptor: int, deadline: float, *, shared: bool = False) -> None:
    """Take the lock, or raise TimeoutError at the deadline (of the monotonic clock)."""
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() > deadline:
            raise TimeoutError("a lock of the private server stayed taken")
        time.sleep(POLL_SECONDS)
