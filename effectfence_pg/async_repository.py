"""The fence in the caller's own transaction, to be awaited. See `repository`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from sqlalchemy import exc

from effectfence_pg.async_surface import AsyncSurface
from effectfence_pg.calls import Calls
from effectfence_pg.checks import require_connection
from effectfence_pg.plans import afollow, chained
from effectfence_pg.sql import preparing
from effectfence_pg.sqlstates import translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from effectfence_pg.plans import Plan
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import (
        EffectCert,
        EffectRequest,
        FenceConfig,
        Fresh,
        Held,
        PreparedEffect,
        Replay,
    )

T = TypeVar("T")


class AsyncFenceRepository(AsyncSurface):
    """The verbs of the fence on an AsyncConnection of yours, for example `await session.connection()`.

    BEGIN and COMMIT are yours, and the transaction must be SERIALIZABLE. See `FenceRepository`.
    """

    def __init__(
        self, connection: AsyncConnection, *, namespace: str = "default", config: FenceConfig | None = None
    ) -> None:
        require_connection(connection, awaits=True)
        self._connection = connection
        self._calls = Calls(namespace, config)

    async def prepare(self, request: EffectRequest | Mapping[str, Any]) -> Fresh | Replay:
        """Admit, replay or refuse one attempt. See `Fence.prepare`."""
        return await self._run(preparing.prepare(self._calls.admission(request)))

    async def commit(
        self, prepared: PreparedEffect | Mapping[str, Any], result: Any, *, closure: str = "require"
    ) -> EffectCert | Held:
        """Record the result and mint the certificate, with the caller's COMMIT. See `Fence.commit`."""
        return await self._run(self._calls.commit(prepared, result, closure))

    async def together(self, plan: Plan[T]) -> T:
        """Follow a plan whose operations are answered with verdict rows."""
        return await afollow(plan, self._execute)

    async def _run(self, operation: Operation[T]) -> T:
        return await afollow(chained(operation), self._execute)

    async def _execute(self, operation: Operation[Any]) -> Any:
        try:
            return (await self._connection.execute(operation.statement, dict(operation.parameters))).one()
        except (exc.DBAPIError, psycopg.Error) as error:
            raise translate(error) from error
