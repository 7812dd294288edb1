"""What replays and refusals write: nothing, and the server says so."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import psycopg

from benchmarks.actions import OTHER_ARGS, fresh, open_fence, refused, replay, request, stranger
from benchmarks.results import Result
from effectfence_pg import IntentInFlight, IntentMismatch, ReadSetStale

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from benchmarks.databases import Bench

CALLS: Final = 100
DISTANCE: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), CAST(%s AS pg_lsn))"
POSITION: Final = "SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())"


def measure(bench: Bench) -> Generator[Result]:
    """WAL bytes and transaction ids over a hundred calls of each kind, on a vacuumed and idle server."""
    with contextlib.ExitStack() as exits:
        connection = exits.enter_context(bench.connect())
        fence = exits.enter_context(open_fence(bench.url_for("on"), connections=1, namespace="wal"))
        done, held, other = (bench.fresh_names(kind, 1)[0] for kind in ("done", "held", "other"))
        fresh(fence, request(done))
        fence.prepare(request(held))
        cases: dict[str, Callable[[], object]] = {
            "replays": lambda: replay(fence, request(done)),
            "replays, not seen before": lambda: replay(stranger(fence), request(done)),
            "refusals: in flight": lambda: refused(IntentInFlight, lambda: fence.prepare(request(held))),
            "refusals: mismatch": lambda: refused(
                IntentMismatch, lambda: fence.prepare(request(done, args=OTHER_ARGS))
            ),
            "refusals: stale read set": lambda: refused(
                ReadSetStale, lambda: fence.prepare(request(other, domain=done, rests=True))
            ),
        }
        taken: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for repetition in range(1, bench.scale.repetitions + 1):
            bench.say(f"wal: repetition {repetition} of {bench.scale.repetitions}")
            for name, call in cases.items():
                taken[name].append(_written(connection, call))
    for name, readings in taken.items():
        yield Result(
            group="wal",
            name=f"{CALLS} {name}",
            synchronous_commit="on",
            unit="bytes",
            figure=median(size for size, _ in readings),
            facts={
                "highest_bytes": max(size for size, _ in readings),
                "transaction_ids": max(ids for _, ids in readings),
            },
        )


def _written(connection: psycopg.Connection[Any], call: Callable[[], object]) -> tuple[float, int]:
    call()
    # Hint bits and page cleaning that earlier writes left behind are not what the calls write.
    connection.execute("VACUUM")
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("CHECKPOINT")
    call()
    position, before = connection.execute(POSITION).fetchone() or ("0/0", 0)
    for _ in range(CALLS):
        call()
    size = (connection.execute(DISTANCE, [position]).fetchone() or (0,))[0]
    after = (connection.execute(POSITION).fetchone() or ("", before))[1]
    return float(size), int(after) - int(before)
