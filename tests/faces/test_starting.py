"""A command that tests fork stands for the same command of a fresh interpreter: its status, its signals, its streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.faces import upstream
from tests.support.until import until
from tests.support.wire import asked
from tests.support.witness import Witness


@pytest.mark.parametrize("arguments", [["--version"], ["nonsense"], ["stats", "--json", "--database-url", "sqlite://"]])
def test_it_says_and_returns_the_same(arguments: list[str], tmp_path: Path) -> None:
    forked, fresh = (
        subprocess.run(
            [*start, *arguments],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "60"},
            capture_output=True,
            check=False,
            timeout=60,
        )
        for start in (warm.python("effectfence_pg"), [sys.executable, "-m", "effectfence_pg"])
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_whoever_waits_sees_which(number: signal.Signals, tmp_path: Path) -> None:
    books = Witness(tmp_path / "books")
    process = subprocess.Popen(upstream(books.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    process.stdin.write(asked(1, "tools/call", {"name": "charge", "arguments": {}}) + "\n")
    process.stdin.flush()
    assert process.stdout.readline()
    itself = Path("/proc", str(books.lines()[0]["pid"]))
    assert itself.exists()
    process.send_signal(number)
    assert process.wait(timeout=30) == -number
    until(lambda: not itself.exists())
    process.communicate()
