"""A user of a private server in a process of its own: prints the URL, and uses the server until its stdin ends.

As a script: ``python holder.py [folder]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@contextlib.contextmanager
def holder(
    folder: Path | None, *, command: Sequence[str] = (sys.executable,), **env: str
) -> Iterator[subprocess.Popen]:
    """Run one; it is killed at the end."""
    arguments = [*command, __file__, *([str(folder)] if folder else [])]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)} | env
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings, cwd="/"
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def report(process: subprocess.Popen) -> dict[str, str]:
    """What it says once it uses the server."""
    line = process.stdout.readline()
    assert line, process.stderr.read().decode()
    return json.loads(line)


def eventually(condition: Callable[[], object], *, seconds: float = 20) -> None:
    """Poll until the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def main() -> None:
    from effectfence_pg.embedded import private_server

    with private_server(sys.argv[1] if len(sys.argv) > 1 else None) as server:
        facts = {"url": server.url, "version": server.version, "folder": str(server.folder.path)}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
