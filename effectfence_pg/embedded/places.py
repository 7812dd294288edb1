"""Where the private server's folder is, such that whoever runs the server can reach it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from effectfence_pg.embedded.errors import EmbeddedUnavailable
from effectfence_pg.embedded.folder import Folder

if TYPE_CHECKING:
    from effectfence_pg.embedded.accounts import Account

STATE_VARIABLE = "EFFECTFENCE_STATE_DIR"
ROOT_STATE = Path("/var/lib/effectfence-pg")
ELSEWHERE = f"Set {STATE_VARIABLE} to a directory for it."


def state_directory(account: Account) -> Path:
    """The directory that keeps data across runs: the variable's, else the user's state directory.

    Root's is in /var/lib, because the server runs as an account that cannot enter root's home.
    """
    if named := os.environ.get(STATE_VARIABLE):
        return Path(named).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    if account.user is not None:
        ours = Path(base, "effectfence-pg")
        return ours if Path(base).is_absolute() and account.reaches(_existing(ours)) else ROOT_STATE
    if not Path(base).is_absolute():
        try:
            base = str(Path.home() / ".local" / "state")
        except RuntimeError as error:
            raise EmbeddedUnavailable(missing=f"no home directory for its data ({error})", remedy=ELSEWHERE) from error
    return Path(base, "effectfence-pg")


def make_folder(path: Path, account: Account) -> Folder:
    """Create the folder, or take the one that is there, and make sure that the account reaches it.

    Only directories that this call creates get a mode; directories that exist are never changed.
    """
    try:
        make_directory(path)
        owner = path.stat().st_uid
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError as error:
        raise EmbeddedUnavailable(missing=f"cannot make a directory for its data: {error}", remedy=ELSEWHERE) from error
    if owner != os.geteuid() or not writable:
        raise EmbeddedUnavailable(missing=f"{path} belongs to user {owner}", remedy=ELSEWHERE)
    if not account.reaches(path):
        raise EmbeddedUnavailable(
            missing=f"{path} is closed to {account.name}, who has to run the server because root may not",
            remedy=ELSEWHERE,
        )
    return Folder(path)


def make_directory(path: Path) -> None:
    """Create a directory that others may pass through but not list, whatever the umask; what is secret is in files."""
    if path.is_dir():
        return
    make_parents(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        return
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)


def make_parents(path: Path) -> None:
    """Create missing parents. For root they must stay passable, also under a umask of 077."""
    for missing in reversed([parent for parent in (path, *path.parents) if not parent.exists()]):
        make_directory(missing)


def temporary_folder(account: Account) -> Folder:
    """A new folder in a temporary directory that the account reaches."""
    for base in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108  mkdtemp makes it safe
        if base.is_dir() and account.reaches(base):
            path = Path(tempfile.mkdtemp(prefix="effectfence-pg-", dir=base))
            if account.user is not None:
                path.chmod(0o711)
            return Folder(path)
    raise EmbeddedUnavailable(missing=f"no temporary directory that {account.name} reaches", remedy="Set TMPDIR.")


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
