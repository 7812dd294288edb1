"""Make the data of a private server: once, atomically, with a password that nobody chose."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from effectfence_pg.embedded.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from effectfence_pg.embedded.accounts import Account
    from effectfence_pg.embedded.binaries import Binaries
    from effectfence_pg.embedded.folder import Folder

USER = "effectfence"
INITDB_SECONDS = 180
SERVER_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # no path that could be longer than 107 bytes, no socket file left in /tmp
    "max_connections": "200",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %d %e ",
}


def data_major(folder: Folder) -> int | None:
    """The major version that the folder's data was made by, None without data."""
    try:
        return int((folder.data / "PG_VERSION").read_text(encoding="ascii"))
    except PermissionError as error:
        raise EmbeddedUnavailable(missing=f"cannot read {folder.data}: {error}", remedy="Run as its owner.") from error
    except (OSError, ValueError):
        return None


def make_cluster(folder: Folder, binaries: Binaries, account: Account, *, temporary: bool) -> None:
    """Run initdb beside the final place and rename, so that an interrupted one leaves no half a cluster.

    Call with the folder's start lock held. Temporary data need not survive a power failure before their first use.
    """
    if data_major(folder) is not None:
        if not folder.password.is_file():
            raise EmbeddedUnavailable(
                missing=f"{folder.password} is gone, and the data of {folder.data} cannot be opened without it",
                remedy=f"Move {folder.path} away to start with empty data.",
            )
        return
    draft, secret = folder.path / "data.new", folder.path / "password.new"
    shutil.rmtree(draft, ignore_errors=True)
    secret.unlink(missing_ok=True)
    password = secrets.token_urlsafe(24)
    try:
        draft.mkdir(mode=0o700)
        account.own(draft)
        for path in (secret, folder.password):
            write_private(path, password)
        account.own(secret)
        _initdb([f"--pwfile={secret}", *(["--no-sync"] if temporary else [])], draft, binaries, account)
        draft.rename(folder.data)
    except OSError as error:
        raise EmbeddedUnavailable(
            missing=f"cannot write its data: {error}", remedy="Make room, or set EFFECTFENCE_STATE_DIR."
        ) from error
    finally:
        secret.unlink(missing_ok=True)


def _initdb(options: list[str], data: Path, binaries: Binaries, account: Account) -> None:
    arguments = [
        *(binaries.program("initdb"), "-D", str(data), f"--username={USER}", *options),
        *("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-instructions"),
    ]
    try:
        done = account.run(arguments, timeout_seconds=INITDB_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise EmbeddedUnavailable(
            missing=f"initdb took over {INITDB_SECONDS} s", remedy="Use a faster disk."
        ) from error
    if done.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        reason = " ".join(done.stdout.split())[-600:]
        raise EmbeddedUnavailable(missing=f"initdb failed: {reason}", remedy="Mend what it names.")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def discard_foreign_pid_file(data: Path) -> None:
    """Remove a pid file whose pid is now another program's, as after a container died: Postgres would refuse to start.

    Call when nobody holds the server lock. A dead pid stays for Postgres to judge, which also looks for the dead
    server's shared memory. A postmaster that somebody started by hand in this very directory is left alone.
    """
    file = data / "postmaster.pid"
    try:
        pid = abs(int(file.read_text(encoding="utf-8").split("\n", 1)[0]))
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return
    except (PermissionError, ValueError, OverflowError):
        pass  # another user's process, while this directory's postmaster would be ours; or cut short by a crash
    else:
        if _serves(pid, data):
            raise EmbeddedUnavailable(
                missing=f"a server that was started by hand runs in {data} (pid {pid})", remedy="Stop it with pg_ctl."
            )
    file.unlink(missing_ok=True)


def _serves(pid: int, data: Path) -> bool:
    """Whether a process is a postmaster of this directory: they work with it as their current directory."""
    process = Path("/proc", str(pid))
    if process.exists():
        try:
            return (process / "cwd").samefile(data)
        except OSError:
            return False
    listed = subprocess.run(["/bin/ps", "-o", "comm=", "-p", str(pid)], check=False, capture_output=True, text=True)  # noqa: S603
    return "postgres" in listed.stdout
