"""Make the checkout's .venv and install the package into it, once per change of what is to be installed.

    python3 scripts/environment.py [--extras dev]

EFFECTFENCE_VENV names another folder than .venv.

Needs Python 3.11 with the venv module, and nothing else. Safe when several scripts start at once, and after one that
was killed half-way.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / os.environ.get("EFFECTFENCE_VENV", ".venv")
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "effectfence-installed.json"
INCLUDES = {
    "dev": {"dev", "test", "cli", "embedded", "mcp", "gateway"},
    "mcp": {"mcp", "cli"},
    "gateway": {"gateway", "mcp", "cli"},
}
OLDEST = (3, 11)


class EnvironmentFailedError(Exception):
    """What went wrong, as one line for the person who ran a script."""


def main() -> int:
    """Make the environment ready, or say in one line why it cannot be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--extras", default="dev", help="the extras to install, separated by commas")
    extras = set(parser.parse_args().extras.split(","))
    try:
        if not ready(extras):
            # The lock is on a file that is always there; the kernel releases it if this process is killed.
            with (ROOT / "pyproject.toml").open("rb") as locked:
                fcntl.flock(locked, fcntl.LOCK_EX)
                if not ready(extras):
                    install(extras)
    except (EnvironmentFailedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def fingerprint() -> str:
    """What an installation depends on: the two files, and where the checkout is, for scripts name their interpreter."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def ready(extras: set[str]) -> bool:
    """Whether an installation with these extras is complete and current."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp["fingerprint"] == fingerprint() and extras <= set(stamp["extras"]) and works("-c", "")


def works(*arguments: str) -> bool:
    """Whether the environment's Python runs this."""
    try:
        return subprocess.run([PYTHON, *arguments], check=False, capture_output=True, cwd=ROOT).returncode == 0
    except OSError:
        return False


def install(extras: set[str]) -> None:
    """Make the environment, and install the package as editable with the exact versions of constraints.txt."""
    if not os.access(VENV if VENV.exists() else ROOT, os.W_OK):
        raise EnvironmentFailedError(
            f"cannot write in {VENV}: make the checkout yours, or clone it to your own directory"
        )
    STAMP.unlink(missing_ok=True)
    make_environment()
    wanted = f".[{','.join(sorted(extras))}]"
    say(f"installing {wanted} into {VENV} ...")
    requirements = ("-q", "-c", "constraints.txt", "-e", wanted)
    uv = shutil.which("uv")
    # pip follows when uv fails: mirrors and certificates are often configured for pip alone.
    if not (uv and run([uv, "pip", "install", "--python", str(PYTHON), *requirements])) and not run(
        [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--root-user-action=ignore", *requirements]
    ):
        raise EnvironmentFailedError("the installation failed; the lines above say why")
    complete = set().union(*(INCLUDES.get(extra, {extra}) for extra in extras))
    STAMP.write_text(json.dumps({"fingerprint": fingerprint(), "extras": sorted(complete)}), encoding="utf-8")


def make_environment() -> None:
    """Make .venv with pip in it, unless a whole one is there. A broken one is replaced."""
    if works("-c", f"import sys, pip; sys.exit(sys.version_info < {OLDEST})"):
        return
    if VENV.is_symlink() or VENV.is_file():
        raise EnvironmentFailedError(f"{VENV} is not a directory of ours; move it away")
    shutil.rmtree(VENV, ignore_errors=True)
    say(f"making {VENV} with Python {sys.version.split()[0]} ...")
    if run([sys.executable, "-m", "venv", "--clear", str(VENV)]):
        return
    uv = shutil.which("uv")
    if not (uv and run([uv, "venv", "-q", "--seed", "--clear", "--python", sys.executable, str(VENV)])):
        raise EnvironmentFailedError("Python's venv module is needed (on Debian and Ubuntu: apt install python3-venv)")


def run(command: Sequence[str]) -> bool:
    """Run a command in the checkout. Its output goes to stderr: stdout belongs to what the scripts run afterwards."""
    # A user-wide wish for user installs or for another environment must not redirect this one.
    surroundings = {
        k: v for k, v in os.environ.items() if k not in {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PYTHONHOME"}
    }
    return subprocess.run(command, check=False, cwd=ROOT, stdout=sys.stderr, env=surroundings).returncode == 0


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
