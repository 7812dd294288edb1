"""``rollback-storm``: speculative plans that contradict each other, on a naive fence and on this one."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import text

from effectfence_pg.cli.cleanup import clean_up
from effectfence_pg.cli.databases import usable_database
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, counted, progress, reporting
from effectfence_pg.cli.rollback_storm_check import Judgement, judge
from effectfence_pg.cli.rollback_storm_fenced import FencedSide
from effectfence_pg.cli.rollback_storm_incident import STEPS, Incident, fenced_incident, naive_incident
from effectfence_pg.cli.rollback_storm_plans import Plan, make_plan
from effectfence_pg.cli.rollback_storm_sides import THREADS, NaiveSide, Side, play
from effectfence_pg.fence import Fence
from effectfence_pg.values import FenceConfig

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

FEWEST_BRANCHES = 3
MOST_BRANCHES = 64


def _branches(given: str) -> str:
    """LOW..HIGH."""
    found = re.fullmatch(r"(\d{1,4})\.\.(\d{1,4})", given)
    if found is None or not FEWEST_BRANCHES <= int(found[1]) <= int(found[2]) <= MOST_BRANCHES:
        raise typer.BadParameter(f"{given!r} is no range such as 3..8, within {FEWEST_BRANCHES}..{MOST_BRANCHES}")
    return given


def rollback_storm(
    *,
    plans: Annotated[int, typer.Option(min=1, max=100_000, help="Random plans.")] = 1000,
    branches: Annotated[
        str, typer.Option(metavar="LOW..HIGH", callback=_branches, help="Branches of a plan.")
    ] = "3..8",
    seed: Annotated[
        int | None, typer.Option(help="The same plans again. Default: a random one.", show_default=False)
    ] = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let speculative plans act on each other's effects and contradict each other, and count what should not stand.

    First one incident step by step, then random plans, each on a naive per-effect fence and on this one. The judge knows the
    plans, what the tools did, and the certificates. Exit status 1 unless the naive fence committed what was rolled back, and
    this one neither did that nor committed a part of anything, and decided everything.

    It writes to the database, into a new namespace that stderr names and one more for the incident: intents and certificates
    stay there, and nothing that is unresolved.
    """
    chosen = secrets.randbelow(2**31) if seed is None else seed
    fewest, most = (int(part) for part in branches.split(".."))
    namespace = f"rollback-storm-{uuid.uuid4().hex[:12]}"
    use = f"writing to namespaces {namespace} and {namespace}-incident of"
    with reporting(as_json), usable_database(database_url, use=use) as url:
        # Every connection plans every statement anew until the server keeps it: few connections, and they keep it at once.
        config = FenceConfig(
            pool_size=THREADS, max_overflow=0, prepare_threshold=0, application_name="effectfence-storm"
        )
        with Fence(url, namespace=namespace, config=config) as fence:
            # Refuses a database that cannot be used before anything is made.
            fence.current("nothing")
            incidents = naive_incident(), _fenced_incident(fence)
            made = [make_plan(chosen, number, fewest, most) for number in range(plans)]
            ours = FencedSide(fence)
            try:
                facts = {"plans": plans, "branches": branches, "seed": chosen} | _storm(made, ours, fence, incidents)
            finally:
                clean_up(fence, "rollback-storm", "the storm is over, and its tools are gone with it", ours.tickets)
        answer(as_json, facts, _text(facts, incidents))
    if not facts["holds"]:
        raise typer.Exit(EXIT_NO)


def _fenced_incident(fence: Fence) -> Incident:
    return fenced_incident(Fence(fence.engine, namespace=f"{fence.namespace}-incident", config=fence.config))


def _storm(plans: list[Plan], ours: FencedSide, fence: Fence, incidents: tuple[Incident, Incident]) -> dict[str, Any]:
    naive = NaiveSide()
    naive_ms = _timed("on the naive fence", naive, plans)
    elapsed_ms = _timed("on this fence", ours, plans)
    theirs = _judged(naive, plans, naive.fence.committed())
    found = _judged(ours, plans, _certified(fence))
    undecided = _undecided(fence)
    with _reading(fence) as connection:
        version = str(connection.scalar(text("SELECT current_setting('server_version')"))).split()[0]
    return {
        "effects": sum(len(plan.steps) for plan in plans),
        "committed": found.committed,
        "aborted": found.aborted,
        "refused": found.refused,
        "elapsed_ms": elapsed_ms,
        "naive": _counted(theirs) | {"elapsed_ms": naive_ms, "incident": incidents[0].as_dict()},
        "closure_aware": _counted(found)
        | {
            "undecided": undecided,
            "compensated": ours.counts.pop("compensated", 0),
            "gave_way": ours.counts.pop("gave_way", 0),
            "refusals": dict(sorted(ours.counts.items())),
            "retries": fence.retries,
            "incident": incidents[1].as_dict(),
        },
        "postgres": version,
        "namespace": fence.namespace,
        "holds": theirs.invalid_commits > 0
        and found.invalid_commits == found.partial_closures == undecided == 0
        and incidents[1].holds
        and not incidents[0].holds,
    }


def _timed(where: str, side: Side, plans: list[Plan]) -> float:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    begun = time.monotonic()
    with Progress(*columns, console=progress, transient=True, disable=not progress.is_terminal) as display:
        task = display.add_task(f"plans {where}", total=len(plans))
        play(side, plans, lambda: display.advance(task))
    return round((time.monotonic() - begun) * 1000, 1)


def _judged(side: Side, plans: list[Plan], certified: AbstractSet[str]) -> Judgement:
    return judge(plans, ran=side.world.ran, certified=certified)


def _counted(found: Judgement) -> dict[str, int]:
    return {"invalid_commits": found.invalid_commits, "partial_closures": found.partial_closures} | {
        "committed": found.committed,
        "aborted": found.aborted,
        "refused": found.refused,
    }


def _certified(fence: Fence) -> set[str]:
    """The intents of all certificates, read out of the bytes that were hashed."""
    query = text("""
        SELECT CAST(convert_from(body, 'UTF8') AS json) ->> 'intent' FROM effectfence.certificates
        WHERE namespace = :namespace""")
    with _reading(fence) as connection:
        return set(connection.scalars(query, {"namespace": fence.namespace}))


def _reading(fence: Fence) -> Connection:
    """A connection for reading when all is over; serializable, as the fence's own are, it could be refused."""
    return fence.engine.connect().execution_options(isolation_level="READ COMMITTED")


def _undecided(fence: Fence) -> int:
    """Effects and branches that nobody has decided about."""
    query = text("""
        SELECT (SELECT count(*) FROM effectfence.effects
                WHERE namespace = :namespace AND state IN ('in_flight', 'executed'))
             + (SELECT count(*) FROM effectfence.branches WHERE namespace = :namespace AND state = 'open')""")
    with _reading(fence) as connection:
        return int(connection.scalar(query, {"namespace": fence.namespace}) or 0)


def _text(facts: dict[str, Any], incidents: tuple[Incident, Incident]) -> str:
    naive, ours = facts["naive"], facts["closure_aware"]
    rows = [("One incident, step by step", "naive fence", "closure-aware fence")]
    rows += zip(STEPS, *(incident.answers for incident in incidents), strict=False)
    rows += [("What is left", *(str(incident.tools) for incident in incidents)), ("", "", "")]
    rows.append((f"{counted(facts['plans'], 'plan')}, {counted(facts['effects'], 'effect')}", "", ""))
    named = {
        "committed": "effects committed",
        "aborted": "effects rolled back",
        "refused": "effects that never ran",
        "invalid_commits": "commits against what was rolled back",
        "partial_closures": "branches and closures committed in part",
    }
    rows += [(name, f"{naive[key]:,}", f"{ours[key]:,}") for key, name in named.items()]
    rows.append(("undecided", "", f"{ours['undecided']:,}"))
    rows.append(("elapsed", f"{naive['elapsed_ms'] / 1000:.1f} s", f"{facts['elapsed_ms'] / 1000:.1f} s"))
    widths = [max(len(row[column]) for row in rows) + 2 for column in (0, 1)]
    lines = [f"{row[0]:<{widths[0]}}{row[1]:<{widths[1]}}{row[2]}".rstrip() for row in rows]
    lines += ["", f"PostgreSQL {facts['postgres']}, seed {facts['seed']}"]
    if not facts["holds"]:
        lines.append(
            "The promise does NOT hold: nothing may stand that rests on what was rolled back, and nothing in part."
        )
    return "\n".join(lines)
