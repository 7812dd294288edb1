"""What the verdict rows of decisions about speculative effects mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from effectfence_pg.errors import (
    AttemptMismatch,
    BranchDecided,
    ClosureAborted,
    ClosurePending,
    ClosureTooLarge,
    CommitConflict,
    InvalidRequest,
    LeaseLost,
    MovedEntry,
    NotReconcilable,
    ReadSetStale,
    UnknownBranch,
    UnknownIntent,
)
from effectfence_pg.protocol.gates import refuse_at_gates
from effectfence_pg.protocol.states import BranchState, State
from effectfence_pg.protocol.verdicts import (
    blockers,
    certificate,
    fallen,
    require_serializable,
    require_ticket,
    stored_clock,
    stored_read_set,
)
from effectfence_pg.values import (
    Aborted,
    Committed,
    Compensation,
    Pending,
    PreparedEffect,
    RolledBack,
    key_of,
    read_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from effectfence_pg.protocol.asked import Admission
    from effectfence_pg.values import ReadSetEntry


@dataclass(frozen=True, slots=True)
class Undoable:
    """What is known of the attempt that a compensation would undo."""

    intent: str
    attempt: int
    domain: str
    compensation: Compensation | None

    @property
    def compensating_intent(self) -> str:
        """The name of the compensation, for people: its key are the columns that name what it undoes."""
        return f"compensation:{self.attempt}:{key_of(self.intent).hex()}"


_PREFIX = "compensation:"
_COMPENSATING = re.compile(_PREFIX + r"[1-9][0-9]*:[0-9a-f]{64}")


def require_plain(intent: str) -> None:
    """Keep the names of compensations for compensations: a user's intent would stand in the place of one.

    Raises:
        InvalidRequest: It is such a name.
    """
    if intent.startswith(_PREFIX) and _COMPENSATING.fullmatch(intent):
        raise InvalidRequest(field="intent", reason="is the name of a compensation: use prepare_compensation")


def interpret_target(intent: str, attempt: int, row: Any) -> Undoable:
    """The attempt to undo.

    Raises:
        UnknownIntent: There is no such attempt.
    """
    if row.intent is None:
        raise UnknownIntent(intent=intent)
    plan = None if row.compensation is None else Compensation.model_validate(read_json(row.compensation))
    return Undoable(intent=intent, attempt=attempt, domain=row.domain, compensation=plan)


def interpret_branch(branch: str, row: Any, *, member_limit: int) -> Committed | Aborted | Pending:
    """The total answer about a branch.

    Raises:
        UnknownBranch: There is none.
        ClosureTooLarge: Nothing moved.
    """
    require_serializable(row)
    if row.branch_state is None:
        raise UnknownBranch(branch=branch)
    if row.branch_state == BranchState.COMMITTED:
        return Committed(branch=branch, effects=row.committed)
    if row.branch_state == BranchState.ABORTED:
        return Aborted(branch=branch, effects=fallen(row.rolled_back))
    return _outcome(row, branch, branch, member_limit)


def interpret_intent(intent: str, row: Any, *, member_limit: int) -> Committed | Aborted | Pending:
    """The same about an intent without a branch.

    Raises:
        UnknownIntent: There is none.
        ClosureTooLarge: Nothing moved.
    """
    require_serializable(row)
    if row.seeds == 0:
        raise UnknownIntent(intent=intent)
    return _outcome(row, None, intent, member_limit, attempt=row.seed_attempt)


def _outcome(
    row: Any, branch: str | None, name: str, member_limit: int, *, attempt: int | None = None
) -> Committed | Aborted | Pending:
    if row.outcome == "too_large":
        raise ClosureTooLarge(intent=name, limit=member_limit)
    if row.outcome == "pending":
        return Pending(branch=branch, attempt=attempt, blockers=blockers(row.waiting))
    if row.outcome == "aborted":
        effects = fallen(row.rolled_back)
        return Aborted(branch=branch, attempt=attempt, effects=effects, blockers=blockers(row.dead))
    return Committed(branch=branch, effects=row.committed)


def require_committed(name: str, outcome: Committed | Aborted | Pending) -> Committed:
    """The answer of promote, which asked for a commit.

    Raises:
        ClosurePending, ClosureAborted: It was not to be had.
    """
    if isinstance(outcome, Committed):
        return outcome
    about: dict[str, Any] = {
        "intent": name,
        "attempt": outcome.attempt or 1,
        "blockers": outcome.blockers,
        "branch": outcome.branch,
    }
    raise ClosurePending(**about) if isinstance(outcome, Pending) else ClosureAborted(**about, effects=outcome.effects)


def interpret_abort_branch(branch: str, row: Any) -> Aborted:
    """What aborting a branch ended.

    Raises:
        UnknownBranch: There is none.
        BranchDecided: It is committed.
    """
    require_serializable(row)
    if row.branch_state is None:
        raise UnknownBranch(branch=branch)
    if row.branch_state == BranchState.COMMITTED:
        raise BranchDecided(branch=branch, state=row.branch_state)
    return Aborted(branch=branch, effects=fallen(row.rolled_back))


def interpret_abort_intent(namespace: str, intent: str, attempt: int, row: Any) -> RolledBack:
    """What aborting an attempt ended.

    Raises:
        UnknownIntent, AttemptMismatch, NotReconcilable: There is nothing to roll back.
        CommitConflict: It is committed.
    """
    require_serializable(row)
    if row.intent is None:
        raise UnknownIntent(intent=intent)
    if row.attempt != attempt:
        raise AttemptMismatch(intent=intent, given=attempt, current=row.attempt)
    if row.state == State.COMMITTED:
        raise CommitConflict(
            intent=intent,
            attempt=attempt,
            certificate=certificate(row, namespace, attempt),
            reason="a committed effect is never rolled back",
        )
    if not row.moved and row.state != State.ABORTED:
        raise NotReconcilable(intent=intent, attempt=attempt, state=row.state, outcome="abort")
    return RolledBack(intent=intent, attempt=attempt, state=State.ABORTED, effects=fallen(row.rolled_back))


def reread_entries(entries: Sequence[ReadSetEntry], listed: Iterable[tuple[int, int]]) -> tuple[MovedEntry, ...]:
    """Entries whose domain the effect has read at another number, from a JSON listing [position from 1, that number]."""
    return tuple(MovedEntry(entries[at - 1].domain, known, entries[at - 1].seq) for at, known in listed)


def interpret_late(prepared: PreparedEffect, call: Admission, row: Any) -> PreparedEffect:
    """The ticket with what was observed late.

    Raises:
        LeaseLost, ClosureAborted: The effect is not in flight any more.
        ReadSetStale, ReadSetUnsettled, UnknownIntent: The effect is unchanged; its holder has read dirty data.
    """
    require_serializable(row)
    require_ticket(prepared, row)
    if row.vector_clock is not None:
        return prepared.observed(
            vector_clock=stored_clock(row.vector_clock),
            read_set=stored_read_set(row.seen_read_set),
            observing=row.observing,
        )
    if row.state == State.ABORTED:
        raise ClosureAborted(intent=prepared.intent, attempt=prepared.attempt, reason=row.reason)
    if row.state != State.IN_FLIGHT:
        reason = row.reason or f"it is {row.state}, and only an effect in flight observes"
        raise LeaseLost(intent=prepared.intent, attempt=prepared.attempt, state=row.state, reason=reason)
    reread = reread_entries(call.read_set, row.reread)
    if reread:
        raise ReadSetStale(entries=reread, intent=prepared.intent, attempt=prepared.attempt)
    refuse_at_gates(call, row)
    raise LeaseLost(
        intent=prepared.intent, attempt=prepared.attempt, state=row.state, reason="it changed while it observed"
    )
