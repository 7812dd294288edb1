"""What a demonstration leaves behind is decided: its tools and their world were its own, so nothing of it is left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from effectfence_pg.errors import FenceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from effectfence_pg.fence import Fence
    from effectfence_pg.values import PreparedEffect


def clean_up(fence: Fence, operator: str, reason: str, tickets: Mapping[str, PreparedEffect] | None = None) -> None:
    """Leave no open branch, no lease, and nothing that somebody would have to look into.

    Whatever cannot be decided, as when the database went away, stays: this runs after an error, too, which is to be seen.
    """
    with contextlib.suppress(FenceError, SQLAlchemyError):
        for row in _found(fence, "SELECT branch FROM effectfence.branches WHERE namespace = :n AND state = 'open'"):
            with contextlib.suppress(FenceError):
                fence.abort_branch(row.branch, reason, actor=operator)
        undecided = "SELECT intent, attempt FROM effectfence.unresolved WHERE namespace = :n"
        for intent, attempt in _found(fence, undecided):
            # Whatever its state is by now, for one decision takes others along: what does not apply is refused.
            ticket = (tickets or {}).get(intent)
            if ticket is not None:
                with contextlib.suppress(FenceError):
                    fence.abort(ticket, reason, effect="none")
            with contextlib.suppress(FenceError):
                fence.abort_intent(intent, attempt=attempt, reason=reason, actor=operator)
            with contextlib.suppress(FenceError):
                fence.reconcile(intent, attempt=attempt, outcome="compensated", evidence=reason, operator=operator)


def _found(fence: Fence, query: str) -> list[Any]:
    with fence.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        return list(connection.execute(text(query), {"n": fence.namespace}))
