"""The fence on an engine: every verb in one serializable transaction of its own, retried as a whole."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import Engine, exc

from effectfence_pg import plans, telemetry
from effectfence_pg.async_transactions import adrive
from effectfence_pg.calls import Calls
from effectfence_pg.engines import leave_at_fork, make_engine
from effectfence_pg.errors import DatabaseUnavailable, FenceClosed
from effectfence_pg.repository import FenceRepository
from effectfence_pg.running.callers import Callers
from effectfence_pg.running.calling import require_tool
from effectfence_pg.running.current import Entered
from effectfence_pg.running.keeping import thread_keeper
from effectfence_pg.running.performing import Performer
from effectfence_pg.running.runs import Desk
from effectfence_pg.running.together import rounds, together
from effectfence_pg.sqlstates import translate
from effectfence_pg.steps import Pause, Steps, drive, steps
from effectfence_pg.surface import Surface
from effectfence_pg.transactions import NAME_TENANT, Executor
from effectfence_pg.versions import require_usable
from effectfence_pg.waiting import admissions
from effectfence_pg.waiting.admissions import Memory
from effectfence_pg.waiting.listening import Listener
from effectfence_pg.waiting.room import apause, pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from sqlalchemy import URL, Connection

    from effectfence_pg.errors import FenceError
    from effectfence_pg.running.current import CurrentEffect
    from effectfence_pg.running.leases import Lease
    from effectfence_pg.running.runs import Ran
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import (
        EffectCert,
        EffectRequest,
        FenceConfig,
        FenceStats,
        Fresh,
        Held,
        PreparedEffect,
        Replay,
    )

T = TypeVar("T")
R = TypeVar("R")


class Fence(Callers, Surface):
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
        leave_at_fork(self.engine)
        self._checked = False
        self._memory = Memory()
        self._listener = Listener(self.engine, namespace, self._memory.room)
        if self._calls.config.notify:
            self._memory.room.listen = self._listener.begin
        self._closed = False
        self._desk = Desk(self._calls, self._memory, self._keep, _let_go, self._require_open)

    def close(self) -> None:
        """Refuse new calls from now on, and close the engine if this fence made it. What has begun is finished and recorded."""
        self._closed = True
        self._listener.end()
        if self._owned:
            self.engine.dispose()

    def _require_open(self) -> None:
        if self._closed:
            raise FenceClosed(namespace=self.namespace)

    def __enter__(self) -> Self:
        self._require_open()
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
        self._require_open()
        return self._drive(admissions.prepare(self._calls, self._memory, request, wait_seconds))

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
        self._require_open()
        return self._drive(
            admissions.commit(
                self._calls, self._memory, prepared, result, closure=closure, timeout_seconds=timeout_seconds
            )
        )

    def run_in_transaction(
        self, request: EffectRequest | Mapping[str, Any], function: Callable[[Connection], R]
    ) -> Ran[R]:
        """Prepare, `function(connection)` and commit in one SERIALIZABLE transaction, retried as a whole.

        For effects that live in the same database: they happen exactly once, and no outcome is ever unknown. A crash, an error
        of the function and a refusal leave nothing at all.

        Args:
            request: What to do.
            function: Writes through the connection and returns the result. It may be called again after a conflict, which has
                undone what it wrote; it neither commits nor does anything outside of this database.

        Raises:
            FenceError: The refusal of prepare or commit.
            RetriesExhausted: Conflicts outlasted the deadline.
            BaseException: What the function raised.
        """
        self._require_open()
        require_tool(function, awaits=False)
        taken = rounds(self.config.retry_deadline_seconds)
        return drive(taken, lambda _: self._round(request, function), self._pause)

    def _round(self, request: EffectRequest | Mapping[str, Any], function: Callable[[Connection], R]) -> Ran[R]:
        if not self._checked:
            self._check_database()
        with self._connected() as connection, connection.begin():
            if self.config.row_security:
                connection.execute(NAME_TENANT, {"namespace": self.namespace})
            repository = FenceRepository(connection, namespace=self.namespace, config=self.config)

            def call(effect: CurrentEffect) -> R:
                with Entered(effect):
                    return function(connection)

            return repository.together(together(self._calls, request, call))

    def _connected(self) -> Connection:
        try:
            return self.engine.connect().execution_options(isolation_level="SERIALIZABLE")
        except exc.DBAPIError as error:
            raise translate(error) from error

    def stats(self) -> FenceStats:
        """What this fence saw: admitted, replayed, refused by cause, prevented. Durable figures are in transitions."""
        return self._memory.stats()

    @property
    def retries(self) -> int:
        """Transactions that this fence ran again, after a serialization conflict or a lost connection."""
        return self._memory.retries

    def _pause(self, asked: Pause) -> None:
        if asked.retry:
            self._memory.count_retry()
        pause(asked)

    def _run(self, operation: Operation[T]) -> T:
        self._require_open()
        return self._drive(self._desk.steps(operation))

    def _follow(self, plan: plans.Plan[T]) -> T:
        self._require_open()
        return plans.follow(plan, lambda operation: self._drive(self._desk.steps(operation)))

    def _drive(self, running: Steps[T]) -> T:
        if not self._checked:
            self._check_database()
        if telemetry.wanted():
            running = telemetry.told(running, self.namespace)
        try:
            return drive(running, self._execute, self._pause)
        finally:
            if self._closed and self._owned:
                # It had begun before the fence was closed: it leaves no connection behind.
                self.engine.dispose()

    def renew_within(self, operation: Operation[dict[int, FenceError]], seconds: float) -> dict[int, FenceError]:
        """Run a renewal, and give up after so many seconds."""
        return self._drive(steps(operation, min(seconds, self.config.retry_deadline_seconds)))

    def _keep(self, prepared: PreparedEffect) -> Lease:
        return thread_keeper().keep(self, prepared, prepared.lease_seconds * self.config.renewal_fraction)

    @functools.cached_property
    def _performer(self) -> Performer:
        return Performer(self._adrive, self._apause)

    async def _apause(self, asked: Pause) -> None:
        if asked.retry:
            self._memory.count_retry()
        await apause(asked)

    async def _adrive(self, running: Steps[T], pause: Callable[[Pause], Awaitable[None]]) -> T:
        """Pauses are awaited and executions are not: the loop is free meanwhile, and a waiter takes no thread."""
        if not self._checked:
            await asyncio.to_thread(self._check_database)
        running = telemetry.told(running, self.namespace) if telemetry.wanted() else running
        try:
            return await adrive(running, functools.partial(asyncio.to_thread, self._execute), pause)
        finally:
            if self._closed and self._owned:
                self.engine.dispose()

    def _check_database(self) -> None:
        """Once per fence: is this a database that this library can work with."""
        try:
            with self.engine.connect() as connection:
                require_usable(connection, tenant_is_named=self.config.row_security)
        except (exc.OperationalError, exc.TimeoutError) as error:
            reason = str(getattr(error, "orig", None) or error)
            raise DatabaseUnavailable(reason=reason.partition("\n")[0]) from error
        except exc.ProgrammingError as error:
            raise translate(error) from error
        self._checked = True


def _let_go(lease: Lease) -> None:
    thread_keeper().let_go(lease)
