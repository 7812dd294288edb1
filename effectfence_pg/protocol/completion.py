"""What the verdict rows of commit, abort and renew mean."""

from __future__ import annotations

from typing import Any

from effectfence_pg.errors import (
    ClosureAborted,
    ClosurePending,
    ClosureTooLarge,
    CommitConflict,
    LeaseLost,
    ReadSetStale,
)
from effectfence_pg.protocol.states import Cause, State
from effectfence_pg.protocol.verdicts import (
    blockers,
    certificate,
    fallen,
    instant,
    moved_entries,
    require_serializable,
    require_ticket,
    stored_read_set,
)
from effectfence_pg.values import EffectCert, Held, PreparedEffect, RolledBack


def interpret_plain(prepared: PreparedEffect, row: Any) -> EffectCert | None:
    """The certificate of an effect that rested on nothing; None when the case is another one."""
    require_serializable(row)
    return None if row.hash is None else certificate(row, prepared.namespace, row.minted_attempt)


def interpret_commit(
    prepared: PreparedEffect, result: str, row: Any, *, asked: bool, member_limit: int
) -> EffectCert | Held:
    """Turn the verdict row of the full commit into a certificate, a held effect, or the refusal.

    Raises:
        FenceError: The result is on record all the same.
    """
    require_serializable(row)
    require_ticket(prepared, row)
    state = row.next_state or row.state
    if state == State.COMMITTED:
        return _committed(prepared, result, row)
    if state == State.EXECUTED:
        if row.too_large:
            raise ClosureTooLarge(intent=prepared.intent, limit=member_limit)
        return _undecided(prepared, result, row, asked=asked)
    if row.undoing is not None and state == State.FAILED:
        raise LeaseLost(
            intent=prepared.intent,
            attempt=prepared.attempt,
            state=state,
            reason="it is being compensated",
            evidence_kept=True,
        )
    if row.state in {State.SUPERSEDED, State.RELEASED} or row.failure == Cause.LATE_EVIDENCE:
        raise LeaseLost(
            intent=prepared.intent,
            attempt=prepared.attempt,
            state=state,
            reason=row.reason or "the outcome was decided without it",
            evidence_kept=row.state != State.FAILED or row.result == result,
        )
    if state == State.ABORTED:
        reason = row.reason or "something it observed was rolled back"
        raise ClosureAborted(
            intent=prepared.intent,
            attempt=prepared.attempt,
            blockers=blockers(row.dead),
            reason=reason,
            effects=fallen(row.rolled_back),
        )
    raise _failed(prepared, result, row)


def _committed(prepared: PreparedEffect, result: str, row: Any) -> EffectCert:
    stored = certificate(row, prepared.namespace, row.minted_attempt)
    if row.next_state is None and row.result != result:
        raise CommitConflict(intent=prepared.intent, attempt=prepared.attempt, certificate=stored)
    return stored


def _undecided(prepared: PreparedEffect, result: str, row: Any, *, asked: bool) -> Held:
    if row.result is not None and row.result != result:
        reason = "it was executed with another result, and the first one is kept"
        raise CommitConflict(intent=prepared.intent, attempt=prepared.attempt, reason=reason)
    waits_for = blockers(row.undecided)
    # An effect with a branch is held: its branch decides, not its holder.
    if asked and prepared.branch is None:
        raise ClosurePending(intent=prepared.intent, attempt=prepared.attempt, blockers=waits_for)
    return Held(intent=prepared.intent, attempt=prepared.attempt, blockers=waits_for)


def _failed(prepared: PreparedEffect, result: str, row: Any) -> Exception:
    """A stale read set, now or at the first commit: the effect did run."""
    if row.next_state is None and row.result != result:
        reason = "it was reported with another result, and the first one is kept"
        return CommitConflict(intent=prepared.intent, attempt=prepared.attempt, reason=reason)
    moved = moved_entries(stored_read_set(row.read_set), row.moved)
    return ReadSetStale(entries=moved, effect_ran=True, intent=prepared.intent, attempt=prepared.attempt)


def interpret_abort(prepared: PreparedEffect, row: Any, *, no_effect: bool) -> RolledBack:
    """Turn the verdict row of abort into what it did.

    Raises:
        LeaseLost: Another attempt took over, or the outcome was decided without this one.
        CommitConflict: It is committed, and that cannot be taken back.
    """
    require_serializable(row)
    require_ticket(prepared, row)
    if row.state == State.COMMITTED:
        raise CommitConflict(
            intent=prepared.intent,
            attempt=prepared.attempt,
            certificate=certificate(row, prepared.namespace, row.minted_attempt),
            reason="a committed effect is never rolled back",
        )
    state = row.next_state or row.state
    if row.state == State.SUPERSEDED or (row.state == State.RELEASED and not no_effect):
        raise LeaseLost(
            intent=prepared.intent,
            attempt=prepared.attempt,
            state=state,
            reason=row.reason or "the outcome was decided without it",
            evidence_kept=True,
        )
    return RolledBack(intent=prepared.intent, attempt=prepared.attempt, state=state, effects=fallen(row.rolled_back))


def interpret_renew(prepared: PreparedEffect, row: Any) -> PreparedEffect:
    """The ticket with its new end of lease.

    Raises:
        LeaseLost, ClosureAborted: The holder can stop.
    """
    require_serializable(row)
    require_ticket(prepared, row)
    if row.renewed_micros is not None:
        return prepared.renewed(instant(row.renewed_micros))
    raise lost(prepared, row.state, row.reason)


def lost(prepared: PreparedEffect, state: str, reason: str | None) -> ClosureAborted | LeaseLost:
    """Why an effect that is not in flight any more has no lease to extend."""
    if state == State.ABORTED:
        why = reason or "something it observed was rolled back"
        return ClosureAborted(intent=prepared.intent, attempt=prepared.attempt, reason=why)
    why = reason or f"it is {state}, and only an effect in flight has a lease"
    return LeaseLost(intent=prepared.intent, attempt=prepared.attempt, state=state, reason=why)
