"""What reaches the write-ahead log, and whether a transaction id was taken: for a server that nobody else uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from effectfence_pg import EffectRequest, Fence, FenceError

SMALLEST_RECORD_BYTES = 24
"""The header of a WAL record: a call that writes anything writes more."""
NEXT_XID = "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
WAL_BYTES = "SELECT CAST(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS bigint)"
BUSY_VACUUM = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
LIMIT_SECONDS = 30.0


def silence(engine: sa.Engine) -> None:
    """Stop the server's own housekeeping: no autovacuum, nothing left to vacuum or to write back.

    Hint bits and pruning are a page's first reader's work, and with checksums they are logged: vacuum does it before.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ALTER SYSTEM SET autovacuum = off"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
        deadline = time.monotonic() + LIMIT_SECONDS
        while connection.scalar(sa.text("SHOW autovacuum")) != "off" or connection.scalar(sa.text(BUSY_VACUUM)):
            assert time.monotonic() < deadline, "autovacuum goes on"
        connection.execute(sa.text("VACUUM (FREEZE, ANALYZE)"))
        # The first one left old statistics in the catalogue, for whoever reads next to clean up.
        connection.execute(sa.text("VACUUM (FREEZE)"))
        connection.execute(sa.text("CHECKPOINT"))


def unsilence(engine: sa.Engine) -> None:
    """Let the server's housekeeping go on."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ALTER SYSTEM RESET autovacuum"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))


def figure(engine: sa.Engine, query: str) -> int:
    """One number, read without taking a transaction id."""
    with engine.connect() as connection:
        return int(connection.scalar(sa.text(query)) or 0)


@contextlib.contextmanager
def used(engine: sa.Engine) -> Iterator[dict[str, int]]:
    """Transaction ids taken and WAL bytes written inside the `with` statement, filled in at its end."""
    found: dict[str, int] = {}
    xid, wal = figure(engine, NEXT_XID), figure(engine, WAL_BYTES)
    yield found
    found["wal_bytes"] = figure(engine, WAL_BYTES) - wal
    found["xids"] = figure(engine, NEXT_XID) - xid


def cases(namespace: str) -> Mapping[str, EffectRequest]:
    """A request for each way in which prepare changes nothing; `put` makes them so."""
    facts = {"tool": "charge", "agent": "agent-b", "args": {"cents": 4900}}

    def request(intent: str, **more: object) -> EffectRequest:
        return EffectRequest(**{"intent": f"{namespace}:{intent}", "domain": f"of:{intent}", **facts, **more})

    return {
        "replay": request("committed"),
        "in_flight": request("in_flight"),
        "mismatch": request("in_flight", args={"cents": 1}),
        "failed": request("failed"),
        "stale": request("new", read_set=[{"domain": "of:committed", "seq": 0}]),
        "unsettled": request("new", read_set=[{"domain": "of:failed", "seq": 2}]),
        "race": request("new", domain="of:committed", expected_seq=0),
        "parent": request("new", parent="0" * 64),
    }


ANSWERS = {
    "replay": "replay",
    "in_flight": "intent_in_flight",
    "mismatch": "intent_mismatch",
    "failed": "intent_failed",
    "stale": "read_set_stale",
    "unsettled": "read_set_unsettled",
    "race": "domain_race",
    "parent": "unknown_parent",
}
"""What prepare answers to each of them."""


def put(fence: Fence) -> None:
    """Bring the intents of `cases` into their states."""
    known = cases(fence.namespace)
    fence.commit(fence.prepare(known["replay"]).prepared, {"receipt": "r-1"})
    fence.prepare(known["in_flight"])
    fence.abort(fence.prepare(known["failed"]).prepared, "the connection broke")


def ask(fence: Fence, request: EffectRequest) -> str:
    """Ask once, expecting a replay or a refusal; its name."""
    try:
        verdict = fence.prepare(request)
    except FenceError as error:
        return error.code
    assert verdict.replayed, "admitted"
    return "replay"
