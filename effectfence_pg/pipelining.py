"""One round trip per transaction: BEGIN, the statement and COMMIT are flushed together and answered together.

The driver's own pipeline mode takes a send and a poll for every command; here the commands are queued in libpq and flushed
once. The generators follow psycopg's contract: they yield when they need the socket, and `connection.wait` waits, blocking or
in an event loop.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import errors, generators, pq
from psycopg.adapt import PyFormat, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

BEGIN: Final = b"BEGIN ISOLATION LEVEL SERIALIZABLE"
COMMIT: Final = b"COMMIT"
BINARY: Final = 1

MAX_PREPARED: Final = 256


@dataclass(slots=True)
class Prepared:
    """A statement that the server keeps under a name, once it has been sent often enough."""

    uses: int = 0
    name: bytes | None = None


class Session:
    """What is known of one connection: its prepared statements, and the adapters for its values."""

    __slots__ = ("connection", "named", "rows", "statements", "transformer")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.transformer = Transformer(connection)
        self.statements: dict[tuple[bytes, tuple[int, ...]], Prepared] = {}
        self.rows: dict[bytes, Callable[..., Any]] = {}
        self.named = 0

    def statement(self, text: bytes, types: tuple[int, ...]) -> Prepared:
        """The record of a statement, counted once more; named when the connection prepares and it is time."""
        known = self.statements.get((text, types))
        if known is None:
            known = self.statements[text, types] = Prepared()
        known.uses += 1
        if known.name is None:
            threshold = self.connection.prepare_threshold
            if threshold is not None and known.uses > threshold and self.named < MAX_PREPARED:
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
    pgconn, transformer = session.connection.pgconn, session.transformer
    dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    types, formats = tuple(transformer.types or ()), transformer.formats
    pgconn.enter_pipeline_mode()
    try:
        commands = _queue(session, BEGIN) if serializable else 0
        commands += _queue(session, text, dumped, types, formats)
        answer = commands - 1
        if serializable:
            commands += _queue(session, COMMIT)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        results: list[Any] = []
        for _ in range(commands):
            fetched = yield from generators.fetch_many(pgconn)
            results.append(fetched[-1])
        yield from generators.fetch_many(pgconn)
    finally:
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            # A preparation that was skipped with the rest of the pipeline is not there: forget what this one queued.
            _forget_unconfirmed(session)
            raise errors.error_from_result(result, encoding=session.connection.info.encoding)
    transformer.set_pgresult(results[answer])
    return transformer.load_row(0, session.rows.get(text) or _row_maker(session, text, results[answer]))


def _queue(
    session: Session,
    text: bytes,
    values: Sequence[Any] | None = None,
    types: tuple[int, ...] = (),
    formats: Sequence[Any] | None = None,
) -> int:
    """Queue a statement, with its preparation before it when it is due; how many answers that gives."""
    known, pgconn = session.statement(text, types), session.connection.pgconn
    if known.name is None:
        pgconn.send_query_params(text, values, param_types=types, param_formats=formats, result_format=BINARY)
        return 1
    if known.uses:
        pgconn.send_query_prepared(known.name, values, param_formats=formats, result_format=BINARY)
        return 1
    pgconn.send_prepare(known.name, text, param_types=types)
    pgconn.send_query_prepared(known.name, values, param_formats=formats, result_format=BINARY)
    return 2


def forget(session: Session) -> None:
    """Drop what is known of prepared statements: somebody else on the connection has deallocated them."""
    session.statements.clear()


def _forget_unconfirmed(session: Session) -> None:
    for key, known in list(session.statements.items()):
        if known.name is not None and known.uses == 0:
            del session.statements[key]


def _row_maker(session: Session, text: bytes, result: Any) -> Callable[..., Any]:
    names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
    kind: Any = namedtuple("Row", names, rename=True)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]
    made = session.rows[text] = kind._make
    return made
