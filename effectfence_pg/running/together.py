"""run_in_transaction: prepare, the caller's function and commit in one SERIALIZABLE transaction, retried as a whole.

For effects that live in the same database: there is no unknown outcome then. A crash at any point leaves all or nothing, and
after a COMMIT whose answer was lost the next round finds the certificate.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import exc

from effectfence_pg.errors import ClosurePending, DatabaseUnavailable, ResultNotRecordable, RetriesExhausted
from effectfence_pg.plans import Invoke, Plan, chained
from effectfence_pg.running.course import effect_of, recorded
from effectfence_pg.running.runs import Ran
from effectfence_pg.sql import preparing
from effectfence_pg.sqlstates import ODD, passes, sqlstate
from effectfence_pg.steps import Pause, Steps, backoff
from effectfence_pg.unfinished import finished
from effectfence_pg.values import ClosureMode, EffectCert, Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from effectfence_pg.calls import Calls
    from effectfence_pg.running.current import CurrentEffect
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import EffectRequest

ROUND: Final = cast("Operation[Any]", None)
"""One round of the whole transaction, in place of one operation."""


def together(
    calls: Calls, request: EffectRequest | Mapping[str, Any], function: Callable[[CurrentEffect], Any]
) -> Plan[Ran[Any]]:
    """What happens inside the transaction; operations are answered with verdict rows."""
    verdict = yield from chained(preparing.prepare(calls.admission(request)))
    if isinstance(verdict, Replay):
        return Ran(recorded(verdict.certificate), replayed=True, certificate=verdict.certificate)
    returned = yield Invoke(function, effect_of(verdict.prepared))
    result = finished(returned, intent=verdict.prepared.intent, rolled_back=True)
    try:
        outcome = yield from chained(calls.commit(verdict.prepared, result, ClosureMode.REQUIRE))
    except ResultNotRecordable as error:
        raise ResultNotRecordable(intent=error.intent, reason=error.reason, rolled_back=True) from error
    except ClosurePending as error:
        raise ClosurePending(
            intent=error.intent, attempt=error.attempt, blockers=error.blockers, rolled_back=True
        ) from error
    if isinstance(outcome, EffectCert):
        return Ran(result, replayed=False, certificate=outcome)
    return Ran(result, replayed=False, held=outcome)


def rounds(deadline_seconds: float) -> Steps[Any]:
    """Ask for rounds until one is committed, or fails for a reason that another one would not mend.

    Raises:
        RetriesExhausted: Conflicts outlasted the deadline.
        DatabaseUnavailable: The connection was lost, and nobody answered again.
    """
    started, attempt, odd = time.monotonic(), 0, 0
    while True:
        attempt += 1
        try:
            return (yield ROUND)
        except Exception as error:
            state = _state(error)
            odd += state in ODD
            lost = _lost(error)
            if not (lost or passes(state, odd)):
                raise
            elapsed = time.monotonic() - started
            if elapsed >= deadline_seconds:
                if lost:
                    raise DatabaseUnavailable(reason=str(error).partition("\n")[0]) from error
                raise RetriesExhausted(attempts=attempt, elapsed_seconds=elapsed, sqlstate=state or "") from error
        yield Pause(backoff(attempt), retry=True)


def _state(error: BaseException) -> str | None:
    found = sqlstate(error)
    return found if isinstance(found, str) else None


def _lost(error: BaseException) -> bool:
    """Whether the connection died in the middle: what was done on it is undone, or was committed and is found again."""
    causes = (error, error.__cause__)
    return any(isinstance(cause, exc.DBAPIError) and cause.connection_invalidated for cause in causes)
