"""The results for people, and for programs."""

from __future__ import annotations

import json
import os
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.databases import Bench
    from benchmarks.results import Result

WIDTH: Final = 150
"""Columns of the table where nobody's terminal says how many there are."""

FACTS: Final = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('data_checksums')"""


def facts_of(bench: Bench) -> dict[str, Any]:
    """What the figures depend on."""
    with bench.connect() as connection:
        version, *settings = connection.execute(FACTS).fetchone() or ("", "", "", "")
    named = dict(zip(("fsync", "full_page_writes", "data_checksums"), settings, strict=True))
    return {
        "postgres": version.split()[0],
        "settings": named,
        "cpus": os.cpu_count(),
        "repetitions": bench.scale.repetitions,
    }


def as_json(facts: dict[str, Any], results: Sequence[Result]) -> str:
    """One object."""
    return json.dumps({**facts, "results": [result.as_dict() for result in results]}, ensure_ascii=False)


def as_table(facts: dict[str, Any], results: Sequence[Result]) -> None:
    """One table, a section for each group and mode."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    settings = ", ".join(f"{name} {value}" for name, value in facts["settings"].items())
    console.print(
        f"PostgreSQL {facts['postgres']} ({settings}), {facts['cpus']} CPUs; medians of {facts['repetitions']} repetitions,"
        f" {facts['elapsed_seconds']} s in all"
    )
    table = Table()
    for heading in ("group", "what", "synchronous_commit"):
        table.add_column(heading, overflow="fold")
    for heading in ("figure", "ratio", "target", "client CPU", "server CPU", "rest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for _, section in groupby(results, key=lambda result: (result.group, result.synchronous_commit)):
        for result in section:
            table.add_row(*_row(result))
        table.add_section()
    console.print(table)
    console.print("CPU and rest: microseconds per operation, mean; rest is neither side's CPU: the disk, and waiting.")


def _row(result: Result) -> tuple[str | Text, ...]:
    percent = (result.target is not None and result.target.percent) or result.unit == "per second"
    ratio = (
        "" if result.ratio is None else f"{result.ratio:.0%}".replace("%", " %") if percent else f"{result.ratio:.2f}"
    )
    style = {True: "green", False: "red", None: ""}[result.met]
    target = "" if result.target is None else str(result.target)
    waiting = result.facts.get("waiting_us")
    return (
        result.group,
        result.name,
        result.synchronous_commit,
        f"{result.figure:,.{2 if result.unit == '(log-log)' else 0}f} {result.unit}",
        Text(ratio, style=style),
        Text(target, style=style),
        _cpu(result, "client"),
        _cpu(result, "server"),
        "" if waiting is None else f"{waiting:,.0f}",
    )


def _cpu(result: Result, side: str) -> str:
    used, ratio = result.facts.get(f"{side}_cpu_us"), result.facts.get(f"{side}_cpu_ratio")
    if used is None:
        return ""
    return f"{used:,.0f}" if ratio is None else f"{used:,.0f} ({ratio:.2f})"
