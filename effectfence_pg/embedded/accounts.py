"""Who runs the server: the caller, or for root an account without privileges, because Postgres refuses root."""

from __future__ import annotations

import dataclasses
import os
import pwd
import subprocess
from typing import TYPE_CHECKING

from effectfence_pg.embedded.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ACCOUNTS = ("postgres", "nobody")
# Nothing else of the caller's environment reaches the server: its tokens and passwords are not the server's business.
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclasses.dataclass(frozen=True)
class Account:
    """Runs commands as one user. Without ids: as the caller."""

    name: str
    user: int | None = None
    group: int | None = None

    def run(self, arguments: Sequence[str], *, timeout_seconds: float = 20) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in ``/`` because the caller's directory may be closed to the account."""
        return subprocess.run(  # noqa: S603
            arguments,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            cwd="/",
            env=environment(),
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else (),
            umask=0o077,
        )

    def reaches(self, directory: Path) -> bool:
        """Whether the account can enter the directory, found by trying it."""
        return self.run(["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)]).returncode == 0

    def own(self, path: Path) -> None:
        """Give a file of ours to the account."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def environment() -> dict[str, str]:
    """The environment of the server's programs."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"PATH": os.defpath} | passed | {"LC_ALL": "C", "TZ": "UTC"}


def server_account(data: Path | None = None) -> Account:
    """The account to run as: the owner of existing data, else ``postgres``, else ``nobody``; not root: the caller."""
    if os.geteuid() != 0:
        return Account("the caller")
    refusals: list[str] = []
    for account in _candidates(data):
        try:
            if account.run(["/bin/sh", "-c", ":"]).returncode == 0:
                return account
            refusals.append(f"{account.name} can run nothing")
        except OSError as error:
            refusals.append(f"{account.name}: {error}")
    raise EmbeddedUnavailable(
        missing=f"PostgreSQL does not run as root, and root cannot become another user ({'; '.join(refusals)})",
        remedy="Run as an ordinary user.",
    )


def _candidates(data: Path | None) -> list[Account]:
    if data is not None and data.exists() and data.stat().st_uid != 0:
        owner = data.stat()
        return [Account(f"user {owner.st_uid}", owner.st_uid, owner.st_gid)]
    known = [_account(name) for name in ACCOUNTS]
    return [account for account in known if account] or [Account("user 65534", 65534, 65534)]


def _account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid)
