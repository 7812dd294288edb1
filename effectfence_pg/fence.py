"""The fence on an engine: every verb in one serializable transaction of its own, retried as a whole."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import Engine, exc, text

from effectfence_pg import telemetry
from effectfence_pg.calls import Calls, Recent, patience
from effectfence_pg.engines import make_engine
from effectfence_pg.errors import (
    ClosurePending,
    DatabaseEncodingError,
    DatabaseUnavailable,
    FenceError,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    ReadSetUnsettled,
)
from effectfence_pg.migrate import current, require_version
from effectfence_pg.sql import verbs
from effectfence_pg.surface import Surface
from effectfence_pg.transactions import Executor, Pause, Steps, drive, steps
from effectfence_pg.values import ClosureMode, FenceStats, Fresh, Held

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from sqlalchemy import URL

    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import (
        EffectCert,
        EffectRequest,
        FenceConfig,
        PreparedEffect,
        Replay,
    )

T = TypeVar("T")

_PATIENT = (IntentInFlight, ReadSetUnsettled)
_ON_RECORD = (IntentInFlight, IntentFailed, IntentMismatch)

RECENT_INTENTS = 10_000
"""Intents that this process has seen on record; the next call for one of them looks before it claims."""


def waiting(
    make: Callable[[], Operation[T]],
    patience_seconds: float,
    undecided: tuple[type[FenceError], ...],
    config: FenceConfig,
) -> Steps[T]:
    """Run an operation; while it answers that something is undecided, ask again until the patience is over.

    Raises:
        FenceError: The last answer.
    """
    ends = time.monotonic() + patience_seconds
    pause = config.poll_initial_seconds
    while True:
        try:
            return (yield from steps(make(), config.retry_deadline_seconds))
        except undecided as error:
            left = ends - time.monotonic()
            if left <= 0 or _never(error):
                raise
            yield Pause(min(pause, left))
            pause = min(pause * 2, config.poll_max_seconds)


def _never(error: FenceError) -> bool:
    """Whether waiting is of no use: what was read before it settled stays refused, whatever becomes of it."""
    return isinstance(error, ReadSetUnsettled) and any(not entry.blockers for entry in error.entries)


class Fence(Surface):
    """Decides which attempt runs a side effect.

    Args:
        database: An engine (psycopg 3), or a URL; an engine made from a URL is closed with the fence.
        namespace: The tenant; part of every key.
        config: Limits and defaults.

    Every verb raises `DatabaseUnavailable` when the database cannot be reached (nothing is admitted then),
    `SchemaVersionError` when it is not migrated to this version, `RetriesExhausted` when conflicts outlast the deadline.
    """

    def __init__(
        self, database: str | URL | Engine, *, namespace: str = "default", config: FenceConfig | None = None
    ) -> None:
        self._calls = Calls(namespace, config)
        self._owned = not isinstance(database, Engine)
        self.engine: Engine = database if isinstance(database, Engine) else make_engine(database, self._calls.config)
        if self.engine.dialect.driver != "psycopg":
            msg = f"the engine's driver is {self.engine.dialect.driver}; the fence needs postgresql+psycopg"
            raise ValueError(msg)
        tenant = namespace if self._calls.config.row_security else None
        self._execute = Executor(self.engine, direct=self._owned, tenant=tenant)
        self._checked = False
        self._recent = Recent(RECENT_INTENTS)
        self._counts: Counter[str] = Counter()
        self._retries = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the engine, if this fence made it."""
        if self._owned:
            self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(
        self, request: EffectRequest | Mapping[str, Any], *, wait_seconds: float | None = None
    ) -> Fresh | Replay:
        """Admit, replay or refuse one attempt of an action. Sources: protocol sections 3 and 6 of the design.

        Args:
            request: What to do; the original's JSON form is accepted as well.
            wait_seconds: How long to poll for the holder's outcome (or for the domain to settle) before refusing.

        Returns:
            Fresh: run the tool, then commit or abort `prepared`. Replay: use `certificate.result`.

        Raises:
            InvalidRequest: Before any database work.
            IntentMismatch, IntentInFlight, IntentFailed, UnknownParent, ReadSetStale, ReadSetUnsettled, UnknownIntent,
            DomainRace: The gate that refused; nothing was changed.
        """
        patience_seconds = patience(wait_seconds, "wait_seconds")
        call = self._calls.admission(request)
        key = call.request.intent_key
        try:
            verdict = self._drive(
                waiting(lambda: verbs.prepare(call, known=key in self._recent), patience_seconds, _PATIENT, self.config)
            )
        except _ON_RECORD as error:
            self._recent.add(key)
            self._count(error.code)
            raise
        except FenceError as error:
            self._count(error.code)
            raise
        self._recent.add(key)
        self._count("admitted" if isinstance(verdict, Fresh) else "replayed")
        return verdict

    def commit(
        self,
        prepared: PreparedEffect | Mapping[str, Any],
        result: Any,
        *,
        closure: str = "require",
        timeout_seconds: float | None = None,
    ) -> EffectCert | Held:
        """Record the result and mint the certificate. Whatever the verdict, the result is durable afterwards.

        Args:
            prepared: The ticket.
            result: Any JSON value.
            closure: While something it observed is undecided: `require` refuses, `hold` returns Held, `wait` waits.
            timeout_seconds: How long `wait` waits.

        Raises:
            UnknownTicket, TicketMismatch: Not a ticket of this fence, or edited.
            LeaseLost: Another attempt replaced this one, or it was decided without it; the result is kept as evidence.
            CommitConflict: Committed before with another result.
            ReadSetStale: The effect did run, and what it rested on had moved.
            ClosureAborted, ClosurePending: What it observed was rolled back, or is undecided.
            ResultNotRecordable: The result is no JSON value or too large; the effect is still in flight.
        """
        timeout = patience(timeout_seconds, "timeout_seconds")
        operation = self._calls.commit(prepared, result, closure)
        patience_seconds = timeout if closure == ClosureMode.WAIT else 0.0
        return self._drive(waiting(lambda: operation, patience_seconds, (ClosurePending,), self.config))

    def stats(self) -> FenceStats:
        """What this fence saw: admitted, replayed, refused by cause, prevented. Durable figures are in transitions."""
        with self._lock:
            counts = dict(self._counts)
        admitted, replayed = counts.pop("admitted", 0), counts.pop("replayed", 0)
        return FenceStats(admitted=admitted, replayed=replayed, refused=counts)

    @property
    def retries(self) -> int:
        """Transactions that this fence ran again, after a serialization conflict or a lost connection."""
        return self._retries

    def _pause(self, asked: Pause) -> None:
        if asked.retry:
            with self._lock:
                self._retries += 1
        time.sleep(asked.seconds)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _run(self, operation: Operation[T]) -> T:
        return self._drive(steps(operation, self.config.retry_deadline_seconds))

    def _drive(self, running: Steps[T]) -> T:
        if not self._checked:
            self._check_database()
        if telemetry.wanted():
            running = telemetry.told(running, self.namespace)
        return drive(running, self._execute, self._pause)

    def _check_database(self) -> None:
        """Once per fence: is this a database that this library can work with."""
        try:
            with self.engine.connect() as connection:
                encoding = connection.scalar(text("SELECT getdatabaseencoding()"))
                found = current(connection)
        except (exc.OperationalError, exc.TimeoutError) as error:
            reason = str(getattr(error, "orig", None) or error)
            raise DatabaseUnavailable(reason=reason.partition("\n")[0]) from error
        if encoding != "UTF8":
            raise DatabaseEncodingError(encoding=str(encoding))
        require_version(found)
        self._checked = True
