"""The fence on an asynchronous engine. See `fence`: the verbs, and what they mean, are the same."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncEngine

from effectfence_pg import plans, telemetry
from effectfence_pg.async_repository import AsyncFenceRepository
from effectfence_pg.async_surface import AsyncSurface
from effectfence_pg.async_transactions import AsyncExecutor, adrive
from effectfence_pg.calls import Calls
from effectfence_pg.engines import leave_at_fork, make_async_engine
from effectfence_pg.errors import DatabaseUnavailable, FenceClosed
from effectfence_pg.running.async_callers import AsyncCallers
from effectfence_pg.running.calling import require_tool
from effectfence_pg.running.current import Entered
from effectfence_pg.running.keeping import task_keeper
from effectfence_pg.running.performing import Performer
from effectfence_pg.running.runs import Claim, Desk
from effectfence_pg.running.together import rounds, together
from effectfence_pg.sqlstates import translate
from effectfence_pg.steps import Pause, Steps, steps
from effectfence_pg.transactions import NAME_TENANT
from effectfence_pg.versions import require_usable
from effectfence_pg.waiting import admissions
from effectfence_pg.waiting.admissions import Memory
from effectfence_pg.waiting.listening import AsyncListener
from effectfence_pg.waiting.room import apause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncConnection

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


class AsyncFence(AsyncCallers, AsyncSurface):
    """Decides which attempt runs a side effect, in an event loop.

    Args:
        database: An AsyncEngine (psycopg 3), or a URL; an engine made from a URL is closed with the fence.
        namespace: The tenant; part of every key.
        config: Limits and defaults.

    A caller that is cancelled in `prepare` leaves nothing admitted behind; one that is cancelled in `commit` or `abort` is let
    go at once, and what it asked for is done all the same (`aclose` waits for it). Errors are those of `Fence`.
    """

    def __init__(
        self, database: str | URL | AsyncEngine, *, namespace: str = "default", config: FenceConfig | None = None
    ) -> None:
        self._calls = Calls(namespace, config)
        self._owned = not isinstance(database, AsyncEngine)
        self.engine: AsyncEngine = (
            database if isinstance(database, AsyncEngine) else make_async_engine(database, self._calls.config)
        )
        if not self.engine.dialect.driver.startswith("psycopg"):
            msg = f"the engine's driver is {self.engine.dialect.driver}; the fence needs postgresql+psycopg"
            raise ValueError(msg)
        tenant = namespace if self._calls.config.row_security else None
        self._execute = AsyncExecutor(self.engine, direct=self._owned, tenant=tenant)
        leave_at_fork(self.engine.sync_engine)
        self._checked = False
        self._checking = asyncio.Lock()
        self._memory = Memory()
        self._listener = AsyncListener(self.engine, namespace, self._memory.room)
        if self._calls.config.notify:
            self._memory.room.listen = self._listener.begin
        self._closed = False
        self._desk = Desk(self._calls, self._memory, self._keep, _let_go, self._require_open)

    async def aclose(self) -> None:
        """Refuse new calls from now on, wait for what is still being recorded, and close the engine if this fence made it."""
        self._closed, self._memory.room.listen = True, None
        await self._performer.background.finish()
        await self._listener.end()
        if self._owned:
            await self.engine.dispose()

    def _require_open(self) -> None:
        if self._closed:
            raise FenceClosed(namespace=self.namespace)

    async def __aenter__(self) -> Self:
        self._require_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def prepare(
        self, request: EffectRequest | Mapping[str, Any], *, wait_seconds: float | None = None
    ) -> Fresh | Replay:
        """Admit, replay or refuse one attempt of an action. See `Fence.prepare`."""
        self._require_open()
        patience = admissions.patience(wait_seconds, "wait_seconds")
        call = self._calls.admission(request)
        return await self._performer.claim(
            Claim(
                lambda: admissions.admit(self._memory, call, patience, self.config),
                lambda prepared: self._desk.steps(
                    self._calls.abort(prepared, "cancelled while it was prepared", "none")
                ),
            )
        )

    async def commit(
        self,
        prepared: PreparedEffect | Mapping[str, Any],
        result: Any,
        *,
        closure: str = "require",
        timeout_seconds: float | None = None,
    ) -> EffectCert | Held:
        """Record the result and mint the certificate. See `Fence.commit`."""
        self._require_open()
        timeout = admissions.patience(timeout_seconds, "timeout_seconds")
        operation = self._calls.commit(prepared, result, closure)
        memory, config = self._memory, self.config
        return await self._performer.settle(lambda: admissions.committing(memory, operation, closure, timeout, config))

    async def run_in_transaction(
        self, request: EffectRequest | Mapping[str, Any], function: Callable[[AsyncConnection], Awaitable[R]]
    ) -> Ran[R]:
        """Prepare, `await function(connection)` and commit in one SERIALIZABLE transaction. See `Fence.run_in_transaction`."""
        self._require_open()
        require_tool(function, awaits=True)
        taken = rounds(self.config.retry_deadline_seconds)
        return await adrive(taken, lambda _: self._round(request, function), self._pause)

    async def _round(
        self, request: EffectRequest | Mapping[str, Any], function: Callable[[AsyncConnection], Awaitable[R]]
    ) -> Ran[R]:
        if not self._checked:
            await self._check_once()
        connection = await self._connected()
        try:
            async with connection.begin():
                if self.config.row_security:
                    await connection.execute(NAME_TENANT, {"namespace": self.namespace})
                repository = AsyncFenceRepository(connection, namespace=self.namespace, config=self.config)

                async def call(effect: CurrentEffect) -> R:
                    with Entered(effect):
                        return await function(connection)

                return await repository.together(together(self._calls, request, call))
        finally:
            await connection.close()

    async def _connected(self) -> AsyncConnection:
        try:
            return await self.engine.execution_options(isolation_level="SERIALIZABLE").connect()
        except exc.DBAPIError as error:
            raise translate(error) from error

    def stats(self) -> FenceStats:
        """What this fence saw. See `Fence.stats`."""
        return self._memory.stats()

    @property
    def retries(self) -> int:
        """Transactions that this fence ran again, after a serialization conflict or a lost connection."""
        return self._memory.retries

    async def renew_within(self, operation: Operation[dict[int, FenceError]], seconds: float) -> dict[int, FenceError]:
        """Run a renewal, and give up after so many seconds."""
        return await self._drive(steps(operation, min(seconds, self.config.retry_deadline_seconds)), self._pause)

    @functools.cached_property
    def _performer(self) -> Performer:
        return Performer(self._drive, self._pause)

    def _keep(self, prepared: PreparedEffect) -> Lease:
        return task_keeper().keep(self, prepared, prepared.lease_seconds * self.config.renewal_fraction)

    async def _pause(self, asked: Pause) -> None:
        if asked.retry:
            self._memory.count_retry()
        await apause(asked)

    async def _run(self, operation: Operation[T]) -> T:
        self._require_open()
        return await self._step(operation)

    async def _follow(self, plan: plans.Plan[T]) -> T:
        self._require_open()
        return await plans.afollow(plan, self._step)

    async def _step(self, operation: Operation[T]) -> T:
        if not operation.writes:
            return await self._drive(self._desk.steps(operation), self._pause)
        return await self._performer.settle(lambda: self._desk.steps(operation))

    async def _drive(self, running: Steps[T], pause: Callable[[Pause], Awaitable[None]]) -> T:
        if not self._checked:
            await self._check_once()
        if telemetry.wanted():
            running = telemetry.told(running, self.namespace)
        try:
            return await adrive(running, self._execute, pause)
        finally:
            if self._closed and self._owned:
                # It had begun before the fence was closed: it leaves no connection behind.
                await self.engine.dispose()

    async def _check_once(self) -> None:
        """Whoever comes meanwhile waits for the first."""
        async with self._checking:
            if not self._checked:
                await self._check_database()

    async def _check_database(self) -> None:
        """Once per fence: is this a database that this library can work with."""
        try:
            async with self.engine.connect() as connection:
                await connection.run_sync(require_usable, tenant_is_named=self.config.row_security)
        except (exc.OperationalError, exc.TimeoutError) as error:
            reason = str(getattr(error, "orig", None) or error)
            raise DatabaseUnavailable(reason=reason.partition("\n")[0]) from error
        except exc.ProgrammingError as error:
            raise translate(error) from error
        self._checked = True


def _let_go(lease: Lease) -> None:
    task_keeper().let_go(lease)
