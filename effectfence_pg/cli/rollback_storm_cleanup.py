"""What the storm leaves behind is decided: its tools and their world were in its own memory, so nothing of it is left."""

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

OPERATOR = "rollback-storm"
REASON = "the storm is over, and its tools are gone with it"


def clean_up(fence: Fence, tickets: Mapping[str, PreparedEffect]) -> None:
    """Leave no open branch, no lease, and nothing that somebody would have to look into.

    Whatever cannot be decided, as when the database went away, stays: this runs after an error, too, which is to be seen.
    """
    with contextlib.suppress(FenceError, SQLAlchemyError):
        for row in _found(fence, "SELECT branch FROM effectfence.branches WHERE namespace = :n AND state = 'open'"):
            with contextlib.suppress(FenceError):
                fence.abort_branch(row.branch, REASON, actor=OPERATOR)
        undecided = "SELECT intent, attempt FROM effectfence.unresolved WHERE namespace = :n"
        for row in _found(fence, undecided):
            _decide(fence, row.intent, row.attempt, tickets.get(row.intent))


def _decide(fence: Fence, intent: str, attempt: int, ticket: PreparedEffect | None) -> None:
    """Whatever its state is by now, for one decision takes others along: what does not apply is refused."""
    if ticket is not None:
        with contextlib.suppress(FenceError):
            fence.abort(ticket, REASON, effect="none")
    with contextlib.suppress(FenceError):
        fence.abort_intent(intent, attempt=attempt, reason=REASON, actor=OPERATOR)
    with contextlib.suppress(FenceError):
        fence.reconcile(intent, attempt=attempt, outcome="compensated", evidence=REASON, operator=OPERATOR)


def _found(fence: Fence, query: str) -> list[Any]:
    with fence.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        return list(connection.execute(text(query), {"n": fence.namespace}))
