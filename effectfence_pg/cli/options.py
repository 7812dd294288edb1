"""Options and helpers that the commands of auditors and operators share."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from effectfence_pg.audit.reading import Reader, reading
from effectfence_pg.cli.databases import usable_database

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="The tenant.")]
AnyNamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The tenant. Default: all of them.", show_default=False)
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"], help="UTC, when it says none."
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many to show.")]


def instant(given: datetime | None) -> datetime | None:
    """A time with its zone: UTC when it has none."""
    return given.replace(tzinfo=UTC) if given is not None and given.tzinfo is None else given


@contextlib.contextmanager
def reader_of(
    database_url: str | None, *, writes: bool = False, any_version: bool = False, by_views: bool = False
) -> Generator[Reader]:
    """A connection to the database that was given, else to that of a private server that is there already."""
    with (
        usable_database(database_url, make=False) as url,
        reading(url, writes=writes, any_version=any_version, by_views=by_views) as reader,
    ):
        yield reader


def ready(value: Any) -> Any:
    """A row or a value of one, ready for JSON."""
    if isinstance(value, dict):
        return {name: ready(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [ready(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else float(value)


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as a table of these columns: name in the row, and heading."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns.values():
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(cell(row[name]) for name in columns))
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
    with console.capture() as captured:
        console.print(made)
    return captured.get().rstrip("\n")


def cell(value: Any) -> str:
    """One value for people."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"  # pyright: ignore[reportUnknownArgumentType]
    text = str(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=True)


def age(seconds: Any) -> str:
    """A duration for people."""
    left = float(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if left >= size:
            return f"{left / size:.1f} {unit}"
    return f"{left:.0f} s"
