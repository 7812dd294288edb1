"""One round trip per transaction: BEGIN, the statement and COMMIT are flushed together and answered together.

The driver's own pipeline mode takes a send and a poll for every command; here the commands are queued in libpq and flushed
once. The generators follow psycopg's contract: they yield when they need the socket, and `connection.wait` waits, blocking or
in an event loop.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import errors, generators, pq
from psycopg.adapt import PyFormat, Transformer

BEGIN: Final = b"BEGIN ISOLATION LEVEL SERIALIZABLE"
COMMIT: Final = b"COMMIT"
BINARY: Final = 1

_MAX_PREPARED = 256


@dataclass(slots=True)
class Prepared:
    """A statement that the server keeps under a name, once it has been sent often enough."""

    uses: int = 0
    name: bytes | None = None


@dataclass(slots=True)
class Session:
    """What is known of one connection: its prepared statements, and the adapters for its values."""

    connection: Any
    statements: dict[tuple[bytes, tuple[int, ...]], Prepared] = field(default_factory=dict)
    rows: dict[bytes, Callable[..., Any]] = field(default_factory=dict)
    named: int = 0

    def statement(self, text: bytes, types: tuple[int, ...]) -> Prepared:
        """The record of a statement, counted once more; named when the connection prepares and it is time."""
        known = self.statements.setdefault((text, types), Prepared())
        known.uses += 1
        threshold = self.connection.prepare_threshold
        if known.name is None and threshold is not None and known.uses > threshold and self.named < _MAX_PREPARED:
            self.named += 1
            known.name = b"effectfence_%d" % self.named
            known.uses = 0
        return known


def session_of(pooled: Any) -> Session:
    """The session of a pooled connection; it lives as long as the driver connection does."""
    found = pooled.info.get("effectfence")
    if found is None or found.connection is not pooled.driver_connection:
        found = pooled.info["effectfence"] = Session(pooled.driver_connection)
    return found


def transaction(
    session: Session, text: bytes, values: Sequence[Any], *, serializable: bool
) -> Generator[Any, Any, Any]:
    """Run one statement in a serializable transaction, or as a plain read; the one row it returns.

    Raises:
        psycopg.Error: What the server said, of any of the commands; the transaction may be left open and failed then.
    """
    pgconn = session.connection.pgconn
    transformer = Transformer(session.connection)
    pgconn.enter_pipeline_mode()
    try:
        commands = 0
        if serializable:
            commands += _queue(session, pgconn, BEGIN, (), (), ())
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        commands += _queue(session, pgconn, text, dumped, transformer.types or (), transformer.formats or ())
        answer = commands - 1
        if serializable:
            commands += _queue(session, pgconn, COMMIT, (), (), ())
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        results = yield from _results(pgconn, commands)
    finally:
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    _raise_first_error(session, results)
    transformer.set_pgresult(results[answer])
    return transformer.load_row(0, _row_maker(session, text, results[answer]))


def _queue(
    session: Session, pgconn: Any, text: bytes, values: Sequence[Any], types: Sequence[int], formats: Sequence[Any]
) -> int:
    """Queue a statement, with its preparation before it when it is due; how many answers that gives."""
    known = session.statement(text, tuple(types))
    if known.name is None:
        pgconn.send_query_params(text, values, param_types=types, param_formats=formats, result_format=BINARY)
        return 1
    due = known.uses == 0
    if due:
        pgconn.send_prepare(known.name, text, param_types=types)
    pgconn.send_query_prepared(known.name, values, param_formats=formats, result_format=BINARY)
    return 2 if due else 1


def _results(pgconn: Any, commands: int) -> Generator[Any, Any, list[Any]]:
    results: list[Any] = []
    for _ in range(commands):
        fetched = yield from generators.fetch_many(pgconn)
        results.append(fetched[-1])
    yield from generators.fetch_many(pgconn)
    return results


def _raise_first_error(session: Session, results: list[Any]) -> None:
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            # A preparation that was skipped with the rest of the pipeline is not there: forget what this one queued.
            _forget_unconfirmed(session)
            raise errors.error_from_result(result, encoding=session.connection.info.encoding)


def forget(session: Session) -> None:
    """Drop what is known of prepared statements: somebody else on the connection has deallocated them."""
    session.statements.clear()


def _forget_unconfirmed(session: Session) -> None:
    for key, known in list(session.statements.items()):
        if known.name is not None and known.uses == 0:
            del session.statements[key]


def _row_maker(session: Session, text: bytes, result: Any) -> Callable[..., Any]:
    made = session.rows.get(text)
    if made is None:
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        kind = namedtuple("Row", names, rename=True)  # noqa: PYI024 (its fields are the statement's columns)
        made = session.rows[text] = kind._make
    return made
