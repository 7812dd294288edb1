"""Drive each framework through its faults, without the fence and with it, and count what really happened."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from effectfence_pg.embedded import private_server
from effectfence_pg.migrate import upgrade
from frameworks.faults import ANSWER, FAULTS, KILLED, PACKAGES

EXIT_NO = 1
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Row:
    """What one fault came to; executions are lines of the witness."""

    framework: str
    version: str
    fault: str
    without: int
    with_fence: int

    @property
    def holds(self) -> bool:
        """Whether the fault was there without the fence, and is gone with it."""
        return self.without > 1 and self.with_fence == 1


class PartFailedError(Exception):
    """A framework did not do what it should: its counts would mean nothing."""


def executions(framework: str, fault: str, fenced: list[str]) -> int:
    """How often the tool really ran.

    Raises:
        PartFailedError: A process did not end as it should.
    """
    with tempfile.TemporaryDirectory(prefix="effectfence-frameworks-") as directory:
        witness = Path(directory, "witness")
        for part in (1, 2) if fault == KILLED else (1,):
            command = [sys.executable, "-W", "ignore", "-m", "frameworks.part", framework, fault, str(part)]
            done = subprocess.run(
                [*command, str(witness), directory, *fenced],
                check=False,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                env={**os.environ, "NO_PROXY": "*", "OPENAI_API_KEY": "none", "DO_NOT_TRACK": "1"},
            )
            killed = fault == KILLED and part == 1
            if done.returncode != (-signal.SIGKILL if killed else 0) or (not killed and ANSWER not in done.stdout):
                raise PartFailedError(f"{framework}, {fault}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return len(witness.read_text(encoding="utf-8").splitlines())


def drive(url: str, frameworks: list[str]) -> list[Row]:
    """Every fault of these frameworks."""
    rows: list[Row] = []
    for framework in frameworks:
        package = PACKAGES[framework]
        for fault in FAULTS[framework]:
            without = executions(framework, fault, [])
            within = executions(framework, fault, [url, f"frameworks-{uuid.uuid4().hex}"])
            rows.append(Row(package, version(package), fault, without, within))
            print(f"{package}: {fault}", file=sys.stderr, flush=True)
    return rows


def table(rows: list[Row]) -> str:
    """For people."""
    head = ("framework", "fault", "without", "with")
    lines = [(f"{row.framework} {row.version}", row.fault, str(row.without), str(row.with_fence)) for row in rows]
    frameworks, faults = (max(len(line[at]) for line in [head, *lines]) for at in (0, 1))
    return "\n".join(
        f"{framework:<{frameworks}}  {fault:<{faults}}  {without:>7}  {within:>4}"
        for framework, fault, without, within in [head, *lines]
    )


def main() -> int:
    """Exit status 1 when a tool ran twice behind the fence, or only once without it."""
    parser = argparse.ArgumentParser(prog="scripts/test frameworks", description=__doc__)
    parser.add_argument("frameworks", nargs="*", choices=[[], *FAULTS], help="all of them by default")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--database-url", metavar="URL", help="a migrated database (default: a private server)")
    given = parser.parse_args()
    wanted = given.frameworks or list(FAULTS)
    if given.database_url:
        rows = drive(given.database_url, wanted)
    else:
        with private_server(temporary=True) as server:
            upgrade(server.url)
            rows = drive(server.url, wanted)
    if given.json:
        print(json.dumps({"holds": all(row.holds for row in rows), "rows": [asdict(row) for row in rows]}))
    else:
        print(table(rows))
    return 0 if all(row.holds for row in rows) else EXIT_NO


if __name__ == "__main__":
    sys.exit(main())
