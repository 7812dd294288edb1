"""``storm``: a thousand racing attempts at one charge, from several processes, and one execution."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
import uuid
from collections import Counter
from multiprocessing import connection as pipes
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import text

from effectfence_pg.cli.databases import usable_database
from effectfence_pg.cli.output import (
    DATABASE_ERRORS,
    EXIT_DATABASE,
    EXIT_NO,
    DatabaseUrlOption,
    JsonOption,
    answer,
    counted,
    progress,
    reporting,
)
from effectfence_pg.cli.storm_worker import CENTS, Share, Storm, Tally, run
from effectfence_pg.errors import FenceError
from effectfence_pg.fence import Fence
from effectfence_pg.values import FenceConfig

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_PROCESSES = 64
POLL_SECONDS = 0.1
LEAVE_SECONDS = 10.0
"""How long a process that has reported may take to close its connections."""
ERRORS_SHOWN = 5


def storm(
    *,
    attempts: Annotated[int, typer.Option(min=1, max=1_000_000, help="Attempts at the one charge.")] = 1000,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads of each process.")] = 25,
    processes: Annotated[int, typer.Option(min=1, max=MAX_PROCESSES, help="Processes, each with its own fence.")] = 4,
    late: Annotated[float, typer.Option(min=0, max=1, help="Share of the attempts that start after the seal.")] = 0.5,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let many attempts from several processes race for one $49.00 charge, and count the charges from outside.

    Exit status 1 unless exactly one attempt executed and every other one got its certificate or stood down.

    It writes to the database, into a new namespace that stderr names: one intent and its certificate, which stay.
    """
    wanted = Storm(attempts, threads, processes, late, namespace=f"storm-{uuid.uuid4().hex[:12]}")
    use = f"writing to namespace {wanted.namespace} of"
    with reporting(as_json), usable_database(database_url, use=use) as url:
        facts = _run(wanted, url)
        answer(as_json, facts, _text(facts))
        for message in facts["errors"][:ERRORS_SHOWN]:
            progress.print(f"error: {message}", soft_wrap=True, markup=False)
    if not facts["holds"]:
        unusable = any(message.partition(":")[0] in _DATABASE_CODES for message in facts["errors"])
        raise typer.Exit(EXIT_DATABASE if unusable else EXIT_NO)


_DATABASE_CODES = frozenset(kind.code for kind in DATABASE_ERRORS)


def _run(wanted: Storm, url: str) -> dict[str, Any]:
    config = FenceConfig(pool_size=1, max_overflow=0)
    with (
        Fence(url, namespace=wanted.namespace, config=config) as fence,
        tempfile.TemporaryDirectory(prefix="effectfence-storm-") as directory,
    ):
        # Refuses a database that cannot be used before anything is spawned.
        fence.current("nothing")
        books = Path(directory, "provider")
        shares = wanted.shares(url, str(books))
        tallies = _race(shares, wanted.attempts)
        # The provider's own books say how often money moved; nobody asks the fence about that.
        executions = len(books.read_text(encoding="utf-8").splitlines()) if books.exists() else 0
        return _facts(wanted, fence, shares[0].intent, tallies, executions)


def _race(shares: list[Share], attempts: int) -> list[Tally]:
    """Spawn the processes, show how far they are, and gather what they report.

    Raises:
        FenceError: What kept a process from the start line.
    """
    context = multiprocessing.get_context("spawn")
    line = context.Barrier(sum(len(share.racing) for share in shares))
    sealed = context.Event()
    counts: Any = context.Array("Q", len(shares), lock=False)
    waiting: dict[Any, BaseProcess] = {}
    try:
        for share in shares:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=run, args=(share, line, sealed, counts, sender), daemon=True)
            process.start()
            sender.close()
            waiting[receiver] = process
        reports = _gather(dict(waiting), counts, attempts)
        for process in waiting.values():
            process.join(LEAVE_SECONDS)
    finally:
        # When this command ends early, nobody is left running.
        for receiver, process in waiting.items():
            process.terminate()
            process.join()
            process.close()
            receiver.close()
    for report in reports:
        if isinstance(report, FenceError):
            raise report
    return [report for report in reports if isinstance(report, Tally)]


def _gather(waiting: dict[Any, BaseProcess], counts: Any, attempts: int) -> list[Tally | FenceError]:
    reports: list[Tally | FenceError] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress, transient=True, disable=not progress.is_terminal) as display:
        task = display.add_task("attempts at one $49.00 charge", total=attempts)
        while waiting:
            ready: Any = pipes.wait(list(waiting), timeout=POLL_SECONDS)
            for receiver in ready:
                process = waiting.pop(receiver)
                try:
                    reports.append(receiver.recv())
                except EOFError:
                    process.join()
                    reports.append(Tally(errors=[("process_ended", f"with status {process.exitcode}")]))
                    # The others would wait for it at the line.
                    for other in waiting.values():
                        other.terminate()
            display.update(task, completed=sum(counts))
    return reports


def _facts(wanted: Storm, fence: Fence, intent: str, tallies: list[Tally], executions: int) -> dict[str, Any]:
    replayed = sum(tally.replayed for tally in tallies)
    stood_down = sum(tally.stood_down for tally in tallies)
    errors = [f"{code}: {message}" for tally in tallies for code, message in tally.errors]
    served = {hash_ for tally in tallies for hash_ in tally.certificates}
    certificate = fence.status(intent).certificate if executions else None
    verified = certificate is not None and certificate.verify()
    with fence.engine.connect() as connection:
        version = str(connection.scalar(text("SELECT current_setting('server_version')"))).split()[0]
    elapsed = max(tally.ended for tally in tallies) - min(tally.started or math.inf for tally in tallies)
    return {
        "attempts": wanted.attempts,
        "executions": executions,
        "replayed": replayed,
        "stood_down": stood_down,
        "errors": errors,
        "elapsed_ms": round(max(elapsed, 0.0) * 1000, 1),
        "processes": wanted.processes,
        "threads": wanted.threads,
        "late": wanted.late,
        "prevented_dollars": (replayed + stood_down) * CENTS / 100,
        "certificate": certificate.hash if certificate else None,
        "verified": verified,
        "postgres": version,
        "namespace": wanted.namespace,
        "holds": executions == 1
        and not errors
        and executions + replayed + stood_down == wanted.attempts
        and sum(tally.executed for tally in tallies) == 1
        and verified
        and served == {certificate.hash if certificate else None},
    }


def _text(facts: dict[str, Any]) -> str:
    prevented = facts["replayed"] + facts["stood_down"]
    rows = {
        "attempts": f"{facts['attempts']:,}",
        "actual executions": f"{facts['executions']:,}",
        "served the sealed certificate": f"{facts['replayed']:,}",
        "told to stand down": f"{facts['stood_down']:,}",
        **({"ended in an error": f"{len(facts['errors']):,}"} if facts["errors"] else {}),
        "elapsed": f"{facts['elapsed_ms'] / 1000:.2f} s",
        "double charges prevented": f"{prevented:,} = ${facts['prevented_dollars']:,.2f}",
    }
    causes = Counter(message.partition(":")[0] for message in facts["errors"])
    racers = f"{counted(facts['processes'], 'process', 'processes')} x {counted(facts['threads'], 'thread')}"
    lines = [
        f"One $49.00 charge, {racers}, PostgreSQL {facts['postgres']}",
        "",
        *(f"  {name:<30} {value}" for name, value in rows.items()),
        "",
        f"certificate {facts['certificate']} {'verified' if facts['verified'] else 'does NOT hold'}",
    ]
    lines += [f"{count} x {cause}" for cause, count in causes.items()]
    if not facts["holds"]:
        lines.append("The promise does NOT hold: exactly one execution was expected, and no attempt unaccounted for.")
    return "\n".join(lines)
