"""One round trip per transaction: BEGIN, the statement and COMMIT are flushed together and answered together.

The driver's own pipeline mode takes a send and a poll for every command; here the commands are queued in libpq and flushed
once. The generators follow psycopg's contract: they yield when they need the socket, and `connection.wait` waits, blocking or
in an event loop.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg import errors, generators, pq, sql
from psycopg.adapt import PyFormat, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

BEGIN: Final = b"BEGIN ISOLATION LEVEL SERIALIZABLE"
BEGIN_READ: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
COMMIT: Final = b"COMMIT"
BY_KEY: Final = b"SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
"""A scan that cannot be avoided is then costed so high that the server would compile the statement: for seconds, not rows."""
BINARY: Final = 1
FATAL_ERROR: Final = pq.ExecStatus.FATAL_ERROR

MAX_PARAMETERS: Final = 64
AUTO: Final = [[PyFormat.AUTO] * count for count in range(MAX_PARAMETERS)]
"""The formats that so many values are sent in: chosen by the adapters."""

NOT_READY: Final[tuple[Any, bytes]] = ("no types", b"")


def naming(namespace: str) -> bytes:
    """What names the tenant to row security, until the end of the transaction."""
    return sql.SQL("SELECT set_config('effectfence.namespace', {}, true)").format(namespace).as_bytes(None)


MAX_PREPARED: Final = 256


@dataclass(slots=True)
class Prepared:
    """A statement that the server keeps under a name, once it has been sent often enough."""

    uses: int = 0
    name: bytes | None = None


class Session:
    """What is known of one connection: its prepared statements, and the adapters for its values."""

    __slots__ = ("connection", "named", "ready", "rows", "statements", "transformer")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.transformer = Transformer(connection)
        self.statements: dict[tuple[bytes, tuple[int, ...]], Prepared] = {}
        self.rows: dict[bytes, Callable[..., Any]] = {}
        self.ready: dict[bytes, tuple[Any, bytes]] = {}
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


def session_of(pooled: Any, connection: Any) -> Session:
    """The session of a pooled connection; it lives as long as the driver's connection in it does."""
    found = pooled.info.get("effectfence")
    if found is None or found.connection is not connection:
        found = pooled.info["effectfence"] = Session(connection)
    return found


class Command(NamedTuple):
    """A statement with its values, as they go over the wire."""

    text: bytes
    values: Sequence[Any] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[Any] | None = None


def transaction(
    session: Session, text: bytes, values: Sequence[Any], *, before: Sequence[bytes] = (), after: Sequence[bytes] = ()
) -> Generator[Any, Any, Any]:
    """Run one statement, with what comes before and after it, in one round trip; the row it returns, if it returns one.

    Raises:
        psycopg.Error: What the server said, of any of the commands; the transaction may be left open and failed then.
    """
    transformer = session.transformer
    dumped = transformer.dump_sequence(values, AUTO[len(values)])
    types, name = session.ready.get(text, NOT_READY)
    if types == transformer.types and not (before or after):
        session.connection.pgconn.send_query_prepared(
            name, dumped, param_formats=transformer.formats, result_format=BINARY
        )
        result = _answer(session, (yield from generators.execute(session.connection.pgconn)))
    else:
        command = Command(text, dumped, tuple(transformer.types or ()), transformer.formats)
        known = session.statement(text, command.types)
        if before or after or (known.name is not None and not known.uses):
            result = yield from _flushed(session, [Command(other) for other in before], command, known, after)
            if known.name is not None:
                session.ready[text] = command.types, known.name
        else:
            _send(session.connection.pgconn, known, command)
            result = _answer(session, (yield from generators.execute(session.connection.pgconn)))
    if not result.ntuples:
        return None
    transformer.set_pgresult(result)
    return transformer.load_row(0, session.rows.get(text) or _row_maker(session, text, result))


def _answer(session: Session, results: list[Any]) -> Any:
    # A conflict that is seen at the end of the transaction comes after the row.
    if results[-1].status == FATAL_ERROR:
        raise errors.error_from_result(results[-1], encoding=session.connection.info.encoding)
    return results[0]


def _flushed(
    session: Session, before: Sequence[Command], command: Command, known: Prepared, after: Sequence[bytes]
) -> Generator[Any, Any, Any]:
    """Queue all the commands and flush them once; the result of the one in the middle."""
    pgconn = session.connection.pgconn
    pgconn.enter_pipeline_mode()
    try:
        commands = sum(_queue(pgconn, session.statement(other.text, ()), other) for other in before)
        commands += _queue(pgconn, known, command)
        answer = commands - 1
        commands += sum(_queue(pgconn, session.statement(other, ()), Command(other)) for other in after)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        results: list[Any] = []
        for _ in range(commands):
            fetched = yield from generators.fetch_many(pgconn)
            results.append(fetched[-1])
        # Without COMMIT the transaction ends with the flush, and a conflict that is seen then has an answer of its own.
        while (fetched := (yield from generators.fetch_many(pgconn)))[-1].status != pq.ExecStatus.PIPELINE_SYNC:
            results += fetched
    finally:
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    for result in results:
        if result.status == FATAL_ERROR:
            # A preparation that was skipped with the rest of the pipeline is not there: forget what this one queued.
            _forget_unconfirmed(session)
            raise errors.error_from_result(result, encoding=session.connection.info.encoding)
    return results[answer]


def _queue(pgconn: Any, known: Prepared, command: Command) -> int:
    """Queue a command, with its preparation before it when it is due; how many answers that gives."""
    due = known.name is not None and not known.uses
    if due:
        pgconn.send_prepare(known.name, command.text, param_types=command.types)
    _send(pgconn, known, command)
    return 2 if due else 1


def _send(pgconn: Any, known: Prepared, command: Command) -> None:
    if known.name is None:
        pgconn.send_query_params(
            command.text,
            command.values,
            param_types=command.types,
            param_formats=command.formats,
            result_format=BINARY,
        )
    else:
        pgconn.send_query_prepared(known.name, command.values, param_formats=command.formats, result_format=BINARY)


def forget(session: Session) -> None:
    """Drop what is known of prepared statements: somebody else on the connection has deallocated them."""
    session.statements.clear()
    session.ready.clear()


def _forget_unconfirmed(session: Session) -> None:
    for key, known in list(session.statements.items()):
        if known.name is not None and known.uses == 0:
            del session.statements[key]


def _row_maker(session: Session, text: bytes, result: Any) -> Callable[..., Any]:
    names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
    kind: Any = namedtuple("Row", names, rename=True)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]
    made = session.rows[text] = kind._make
    return made
