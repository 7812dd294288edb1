"""``lineage``, ``verify``, ``export``, ``import`` and ``doctor``: what an auditor asks, and what the server needs."""

from __future__ import annotations

import contextlib
import getpass
import sys
from enum import StrEnum
from pathlib import Path  # noqa: TC003 (read when the command is made)
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from effectfence_pg.audit import diagnosis, importing, ledger, verification
from effectfence_pg.audit import lineage as walking
from effectfence_pg.cli.options import AnyNamespaceOption, NamespaceOption, SinceOption, instant, reader_of, ready
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, counted, progress, reporting
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.rendering import FORMATS, facts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import IO

LINES_SHOWN = 20
ENOUGH_FOR_A_RATE = 1000
"""Certificates; the time that fewer take is that of a query, whatever their number."""


class Format(StrEnum):
    """How a lineage is drawn."""

    TREE = "tree"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    HTML = "html"
    JSON = "json"


def lineage(
    name: Annotated[str, typer.Argument(metavar="HASH|INTENT", help="A certificate, or an intent that is committed.")],
    *,
    namespace: NamespaceOption = "default",
    dependents: Annotated[
        bool, typer.Option("--dependents", help="What rests on it, instead of what it rests on.")
    ] = False,
    depth: Annotated[int | None, typer.Option(min=0, help="How many steps to go.", show_default="all")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to draw it.")] = Format.TREE,
    out: Annotated[Path | None, typer.Option(help="Write it to this file.")] = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a certificate rests on: every effect that its decision observed, and theirs in turn."""
    with reporting(as_json), reader_of(database_url, by_views=True) as reader:
        graph = walking.lineage(reader, namespace, name, dependents=dependents, depth=depth)
        picture = FORMATS[format_](graph)
        if out is None:
            answer(as_json, facts(graph), picture)
            return
        _write(out, picture + "\n")
        said = {"out": str(out), "format": str(format_), "nodes": len(graph.nodes), "edges": len(graph.edges)}
        answer(as_json, said, f"{counted(len(graph.nodes), 'effect')}, {counted(len(graph.edges), 'edge')}: {out}")


def verify(
    *,
    namespace: AnyNamespaceOption = None,
    since: SinceOption = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An earlier export: what is gone or rewritten.")
    ] = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every certificate, in SQL and in Python.

    Exit status 1, with a list, when one does not hold, and when the database or the earlier export has nothing of a namespace.
    """
    with reporting(as_json), contextlib.ExitStack() as exits:
        reader = exits.enter_context(reader_of(database_url, by_views=True))
        earlier = None
        if against is not None:
            earlier = ledger.Earlier(
                exits.enter_context(_opened(against, "against")), namespace=namespace, since=instant(since)
            )
        show = exits.enter_context(_shown("certificates recomputed"))
        found = verification.verify(reader, namespace=namespace, since=instant(since), against=earlier, progress=show)
        answer(as_json, ready(found.facts()), _verified(found.facts()))
    if not found.holds:
        raise typer.Exit(EXIT_NO)


def _verified(found: dict[str, Any]) -> str:
    lines = [f"{counted(found['certificates'], 'certificate')} recomputed{_rates(found)}, digest {found['digest']}"]
    lines += [
        f"  {row['namespace']} {row['intent']} {row['hash']}: {', '.join(row['checks'])}"
        for row in found["mismatches"][:LINES_SHOWN]
    ]
    lines += [f"  {row['namespace']} {row['intent']}: committed, without a certificate" for row in found["missing"]]
    if earlier := found["against"]:
        lines.append(
            f"{counted(earlier['certificates'], 'certificate')} of an earlier export compared, digest {earlier['digest']}"
        )
        lines += [
            f"  {row['namespace']} {row['intent']} {row['hash']}: gone or rewritten since"
            for row in earlier["missing"][:LINES_SHOWN]
        ]
        lines += [
            f"  {row['namespace']} {row['intent']} {row['hash']}: what it observed, or what stands beside it, was changed"
            for row in earlier["changed"][:LINES_SHOWN]
        ]
        if earlier["lacks_namespace"]:
            lines.append("  the earlier export has nothing of this namespace: nothing was compared")
    if found["holds"]:
        lines.append(
            "all of it holds" if found["certificates"] else "there was nothing to verify: no certificate was found"
        )
    else:
        lines.append("it does NOT hold")
    return "\n".join(lines)


def _rates(found: dict[str, Any]) -> str:
    """How fast it was, once there are enough to tell."""
    if found["certificates"] < ENOUGH_FOR_A_RATE:
        return ""
    return f" ({', '.join(f'{rate:,} a second in {name}' for name, rate in found['per_second'].items())})"


def export(
    *,
    out: Annotated[Path | None, typer.Option(help="Write to this file. Default: stdout.", show_default=False)] = None,
    namespace: AnyNamespaceOption = None,
    since: SinceOption = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write every certificate as a line of JSON that verifies elsewhere, and a last line with their count and digest."""
    if as_json and out is None:
        raise typer.BadParameter("--json goes with --out: stdout holds one or the other")
    with reporting(as_json), contextlib.ExitStack() as exits:
        reader = exits.enter_context(reader_of(database_url, by_views=True))
        show = exits.enter_context(_shown("certificates written"))
        file = sys.stdout if out is None else exits.enter_context(_opened(out, "out", "w"))
        total = ledger.export(
            reader, file, namespace=namespace, since=instant(since), progress=lambda done: show(done, 0)
        )
        if out is not None:
            file.flush()
            said = f"{counted(total.certificates, 'certificate')}, digest {total.digest}: {out}"
            answer(as_json, {"out": str(out), **vars(total)}, said)


def bring_in(
    file: Annotated[Path, typer.Argument(help="An export.")],
    *,
    operator: Annotated[
        str | None, typer.Option(help="Who is on record for it. Default: who is logged in here.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only verify the file; no database is used.")] = False,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify an export line by line, and store what is not here yet: all of it, or nothing."""
    with reporting(as_json), contextlib.ExitStack() as exits:
        lines = exits.enter_context(_opened(file, "file"))
        show = exits.enter_context(_shown("lines read"))
        if check:
            count = sum(1 for _ in ledger.entries(lines))
            answer(as_json, {"verified": count}, f"{counted(count, 'certificate')} verified")
            return
        writer = exits.enter_context(reader_of(database_url, writes=True))
        stored, known = importing.bring_in(
            writer, lines, operator=operator or getpass.getuser(), progress=lambda done: show(done, 0)
        )
        answer(
            as_json,
            {"stored": stored, "known": known},
            f"{counted(stored, 'certificate')} stored, {known:,} known already",
        )


def doctor(*, database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Look after the server: schema, clocks, durability, grants, leases, hot domains, bloat. Exit status 1: something fails."""
    with reporting(as_json), reader_of(database_url, any_version=True) as reader:
        found = list(diagnosis.diagnose(reader))
        worst = max((finding.level for finding in found), key=("ok", "warn", "fail").index)
        checks = [vars(finding) | {"facts": ready(finding.facts)} for finding in found]
        lines = [f"{finding.level:<5} {finding.name:<18} {finding.detail}" for finding in found]
        answer(as_json, {"level": worst, "checks": checks}, "\n".join(lines))
    if worst == "fail":
        raise typer.Exit(EXIT_NO)


@contextlib.contextmanager
def _shown(what: str) -> Generator[Callable[[int, int], None]]:
    """A progress bar on a terminal, and nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress, transient=True, disable=not progress.is_terminal) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total or None)


@contextlib.contextmanager
def _opened(path: Path, field: str, mode: str = "r") -> Generator[IO[str]]:
    """Raises InvalidRequest for what cannot be opened, and later for what cannot be read or written."""
    try:
        # JSON lines end with a line feed; other separators of lines may stand in a text.
        with path.open(mode, encoding="utf-8", newline="\n") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InvalidRequest(field=field, reason="is no text in UTF-8") from error
    except OSError as error:
        reason = f"{path} cannot be {'read' if mode == 'r' else 'written'}: {error.strerror}"
        raise InvalidRequest(field=field, reason=reason) from error


def _write(path: Path, text: str) -> None:
    with _opened(path, "out", "w") as file:
        file.write(text)
