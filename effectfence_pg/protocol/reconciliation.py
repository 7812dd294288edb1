"""What the verdict row of reconcile means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from effectfence_pg.errors import (
    AttemptMismatch,
    ClosureAborted,
    CommitConflict,
    IntentInFlight,
    InvalidRequest,
    NotReconcilable,
    UnknownIntent,
)
from effectfence_pg.protocol.admission import Fence
from effectfence_pg.protocol.gates import in_flight
from effectfence_pg.protocol.states import State
from effectfence_pg.protocol.verdicts import blockers, require_serializable
from effectfence_pg.values import Outcome

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an operator says about one attempt."""

    intent: str
    attempt: int
    outcome: Outcome
    result: str | None
    operation: UUID


def interpret_reconcile(judgement: Judgement, row: Any) -> Fence | None:
    """Return None once the judgement is recorded, or the expired lease that has to be fenced before.

    Raises:
        FenceError: Nothing was changed.
    """
    require_serializable(row)
    if row.intent is None:
        raise UnknownIntent(intent=judgement.intent)
    # By its own mark on the judged attempt: when the first answer was lost, a new attempt may be current by now.
    if row.next_state is not None or row.judged_by == judgement.operation:
        return None
    if row.attempt != judgement.attempt:
        raise AttemptMismatch(intent=judgement.intent, given=judgement.attempt, current=row.attempt)
    if row.lease_live:
        raise in_flight(judgement.intent, row)
    if row.state == State.IN_FLIGHT:
        return Fence(row.attempt)
    _refuse(judgement, row)
    return None


def _refuse(judgement: Judgement, row: Any) -> None:
    fenced = row.state in {State.FAILED, State.ABORTED}
    if judgement.outcome == Outcome.HAPPENED and fenced and row.undoing is None:
        if row.known_result is None:
            raise InvalidRequest(field="result", reason="is required: no result of this attempt is on record")
        if judgement.result is not None and row.result not in {None, judgement.result}:
            reason = "it was reported with another result, and the first one is kept"
            raise CommitConflict(intent=judgement.intent, attempt=row.attempt, reason=reason)
        raise ClosureAborted(
            intent=judgement.intent,
            attempt=row.attempt,
            blockers=blockers(row.dead),
            reason="what it observed was rolled back; reconcile it with over=True, or compensate it",
        )
    if fenced and row.undoing == State.IN_FLIGHT and judgement.outcome != Outcome.HAPPENED:
        raise IntentInFlight(intent=judgement.intent, attempt=row.attempt, holder="its compensation")
    raise NotReconcilable(
        intent=judgement.intent, attempt=row.attempt, state=row.state, outcome=judgement.outcome.value
    )
