"""What is measured: the floor's statements, and the fence's verbs as a caller would use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from benchmarks.results import BenchFailedError
from effectfence_pg import EffectRequest, Fence, FenceConfig, FenceError, Fresh, ReadSetEntry, Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from sqlalchemy import URL

ARGS = {"amount_cents": 4900, "currency": "usd", "customer": "customer-0001"}
OTHER_ARGS = ARGS | {"amount_cents": 5000}
RESULT = {"charge": "charge-0001", "status": "succeeded"}
LEASE_SECONDS = 3600.0

FLOOR_ROWS = 2000
MAKE_FLOOR = """
CREATE TABLE IF NOT EXISTS floor (id bigint PRIMARY KEY, body text NOT NULL) WITH (fillfactor = 50);
INSERT INTO floor (id, body) SELECT -number, repeat('a', 100) FROM generate_series(1, %d) AS number ON CONFLICT DO NOTHING;
ANALYZE floor"""
INSERT = "INSERT INTO floor (id, body) VALUES (%s, %s)"
UPDATE = "UPDATE floor SET body = %s WHERE id = %s"
SELECT = "SELECT body FROM floor WHERE id = %s"
BODIES = ("a" * 100, "b" * 100)


def make_floor(connection: psycopg.Connection[Any]) -> None:
    """The floor's table, with so many rows that no plan reads all of it: that floor would be too high."""
    connection.execute(MAKE_FLOOR % FLOOR_ROWS)


class Floor:
    """The least that the same guarantees could cost: one row, one INSERT transaction and one UPDATE transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Use an open connection in autocommit; every statement is prepared."""
        self._cursor = connection.cursor()
        self.pid = connection.info.backend_pid

    def write(self, key: int) -> None:
        """Two transactions: the row comes, and changes."""
        self._cursor.execute(INSERT, (key, BODIES[0]), prepare=True)
        self._cursor.execute(UPDATE, (BODIES[1], key), prepare=True)

    def read(self, key: int) -> None:
        """One row by its primary key."""
        self._cursor.execute(SELECT, (key,), prepare=True)
        if self._cursor.fetchone() is None:
            raise BenchFailedError(f"row {key} is gone")


def open_fence(url: URL, *, connections: int, namespace: str = "bench") -> Fence:
    """A fence with exactly so many connections, all of them open, that has checked its database."""
    fence = Fence(url, namespace=namespace, config=FenceConfig(pool_size=connections, max_overflow=0))
    backends(fence, connections)
    fence.current("warm")
    return fence


def backends(fence: Fence, connections: int) -> list[int]:
    """The process numbers of the fence's connections."""
    taken = [fence.engine.connect() for _ in range(connections)]
    try:
        return [connection.scalar(text("SELECT pg_backend_pid()")) or 0 for connection in taken]
    finally:
        for connection in taken:
            connection.close()


def stranger(fence: Fence) -> Fence:
    """A fence on the same connections that has seen no intent: what another process would be."""
    other = Fence(fence.engine, namespace=fence.namespace, config=fence.config)
    other.current("warm")
    return other


def request(
    intent: str, *, domain: str | None = None, args: dict[str, Any] = ARGS, rests: bool = False
) -> EffectRequest:
    """A charge. One that rests on something has read its domain before anything happened there."""
    return EffectRequest(
        intent=intent,
        domain=domain or intent,
        tool="charge_card",
        agent="bench",
        args=args,
        read_set=(ReadSetEntry(domain=domain or intent, seq=0),) if rests else (),
        lease_seconds=LEASE_SECONDS,
    )


def fresh(fence: Fence, asked: EffectRequest) -> None:
    """Admission and certificate; the tool between them takes no time."""
    verdict = fence.prepare(asked)
    if not isinstance(verdict, Fresh):
        raise BenchFailedError(f"{asked.intent} is on record")
    fence.commit(verdict.prepared, RESULT)


def replay(fence: Fence, asked: EffectRequest) -> None:
    """The certificate of an intent that is done."""
    if not isinstance(fence.prepare(asked), Replay):
        raise BenchFailedError(f"{asked.intent} was not on record")


def refused(expected: type[FenceError], prepare: Callable[[], object]) -> None:
    """A refusal, and none but this one."""
    try:
        prepare()
    except expected:
        return
    raise BenchFailedError(f"{expected.__name__} was expected")
