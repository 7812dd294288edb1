"""What the fence costs, beside raw psycopg on the same server in the same run."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

import psycopg

from benchmarks import audit, closure, core, gateway, storm, threads, wal
from benchmarks import run as running
from benchmarks.databases import own_database
from benchmarks.report import as_json, as_table, facts_of
from benchmarks.results import QUICK, BenchFailedError, Group, Result, Scale
from effectfence_pg.errors import FenceError
from effectfence_pg.settings import InvalidDatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUPS: Final[Mapping[str, Group]] = {
    "core": core.measure,
    "threads": threads.measure,
    "storm": storm.measure,
    "wal": wal.measure,
    "run": running.measure,
    "closure": closure.measure,
    "audit": audit.measure,
    "gateway": gateway.measure,
}
"""Every group, in the order they run; another one adds itself in one line."""

EXIT_NO, EXIT_USAGE, EXIT_DATABASE = 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the groups that were asked for. Targets are shown; missing one is no failure."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"what to measure: {', '.join(GROUPS)}; all of them")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="a short run: the figures are rough")
    parser.add_argument(
        "--database-url",
        metavar="URL",
        help="a server on which a database may be created, and dropped at the end (default: a private one)",
    )
    given = parser.parse_args(arguments)
    for group in given.groups:
        if group not in GROUPS:
            parser.error(f"there is no group {group!r}, only {', '.join(GROUPS)}")
    wanted = [group for group in GROUPS if group in (given.groups or GROUPS)]
    try:
        return run(wanted, QUICK if given.quick else Scale(), given.database_url, json=given.json)
    except InvalidDatabaseUrl as error:
        return _fail(error, EXIT_USAGE)
    except BenchFailedError as error:
        return _fail(error, EXIT_NO)
    except (FenceError, psycopg.Error) as error:
        return _fail(error, EXIT_DATABASE)


def run(groups: list[str], scale: Scale, database_url: str | None, *, json: bool) -> int:
    """Measure, then print everything at once."""
    begun = time.monotonic()
    results: list[Result] = []
    with own_database(database_url, scale) as bench:
        facts = facts_of(bench)
        for group in groups:
            results += GROUPS[group](bench)
    facts["elapsed_seconds"] = round(time.monotonic() - begun, 1)
    if json:
        print(as_json(facts, results))
    else:
        as_table(facts, results)
    return 0


def _fail(error: Exception, status: int) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
