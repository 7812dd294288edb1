"""The fence in the caller's own transaction: your rows and the certificate commit together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from sqlalchemy import exc

from effectfence_pg.calls import Calls
from effectfence_pg.checks import require_connection
from effectfence_pg.plans import chained, follow
from effectfence_pg.sql import preparing
from effectfence_pg.sqlstates import is_retryable, translate
from effectfence_pg.surface import Surface

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

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

__all__ = ["FenceRepository", "is_retryable"]


class FenceRepository(Surface):
    """The verbs of the fence on a connection of yours, for example `session.connection()`.

    BEGIN and COMMIT are yours: it never commits, never rolls back and never retries. The transaction must be SERIALIZABLE.

    Every verb raises `SerializationConflict` when the transaction lost a race (roll back and run all of it again;
    `is_retryable` recognises the same at your own COMMIT), and every one that decides anything raises `IsolationTooWeak`
    when it is not SERIALIZABLE; `observe`, `current` and `status` are plain reads.
    """

    def __init__(
        self, connection: Connection, *, namespace: str = "default", config: FenceConfig | None = None
    ) -> None:
        require_connection(connection, awaits=False)
        self._connection = connection
        self._calls = Calls(namespace, config)

    def prepare(self, request: EffectRequest | Mapping[str, Any]) -> Fresh | Replay:
        """Admit, replay or refuse one attempt. See `Fence.prepare`."""
        return self._run(preparing.prepare(self._calls.admission(request)))

    def commit(
        self, prepared: PreparedEffect | Mapping[str, Any], result: Any, *, closure: str = "require"
    ) -> EffectCert | Held:
        """Record the result and mint the certificate, with the caller's COMMIT. See `Fence.commit`."""
        return self._run(self._calls.commit(prepared, result, closure))

    def together(self, plan: Plan[T]) -> T:
        """Follow a plan whose operations are answered with verdict rows."""
        return follow(plan, self._execute)

    def _run(self, operation: Operation[T]) -> T:
        return follow(chained(operation), self._execute)

    def _execute(self, operation: Operation[Any]) -> Any:
        try:
            return self._connection.execute(operation.statement, dict(operation.parameters)).one()
        except (exc.DBAPIError, psycopg.Error) as error:
            raise translate(error) from error
