"""What the verdict row of prepare means: admitted, replayed, refused, or one more step over an expired lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from effectfence_pg.errors import (
    IntentFailed,
    SerializationConflict,
)
from effectfence_pg.protocol.asked import Admission, rests
from effectfence_pg.protocol.gates import in_flight, refuse_at_gates, require_same_action
from effectfence_pg.protocol.states import Cause, State
from effectfence_pg.protocol.verdicts import certificate, instant, require_serializable, stored_clock
from effectfence_pg.values import Fresh, LeaseExpiry, PreparedEffect, Replay
from effectfence_pg.values.trusted import trusted

WAY_OUT = "reconcile it with what really happened"


@dataclass(frozen=True, slots=True)
class Fence:
    """The intent is held by an attempt whose lease ran out, and its outcome is unknown: fence it first."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Undecided:
    """The intent's attempt has run and waits for a decision: what it waits for is not in this row."""


@dataclass(frozen=True, slots=True)
class Replace:
    """The intent's attempt is released, or its lease ran out and it may be taken over: admit the next one in its place."""

    attempt: int
    takeover: bool


Verdict = Fresh | Replay | Fence | Undecided | Replace
"""What prepare can come to: an answer, or one more step."""


def interpret(admission: Admission, row: Any) -> Verdict:
    """Turn the verdict row into a result, in the order of the gates.

    Raises:
        FenceError: The refusal; nothing was changed.
    """
    require_serializable(row)
    if row.fresh_seq is not None:
        return admitted(_ticket(admission, row) if rests(admission) else _plain_ticket(admission, row))
    if row.state is not None:
        return on_record(admission, row)
    if rests(admission):
        refuse_at_gates(admission, row)
    # Nothing admitted, nothing on record, nothing refused: a rival's row that this snapshot cannot see. Never a win.
    raise SerializationConflict(sqlstate="40001")


def interpret_replacement(admission: Admission, old: Replace, row: Any) -> Fresh | None:
    """The same for the admission in place of another attempt; None when that was no longer there to be replaced.

    It may have been replaced by this very call, whose answer was lost: the own number must not look like a rival's then.
    """
    require_serializable(row)
    if row.fresh_seq is not None:
        return admitted(_ticket(admission, row))
    if not row.admitted_before:
        if row.undoing is not None:
            raise IntentFailed(
                intent=admission.request.intent,
                attempt=old.attempt,
                state=State.FAILED,
                reason="it is being compensated",
                way_out="wait for its compensation, or reconcile that",
            )
        refuse_at_gates(admission, row)
    return None


def admitted(prepared: PreparedEffect) -> Fresh:
    """The verdict over an admission, whose ticket needs no validation."""
    return trusted(Fresh, {"prepared": prepared})


def _plain_ticket(admission: Admission, row: Any) -> PreparedEffect:
    """The ticket of a first attempt that rests on nothing."""
    return PreparedEffect.admitted(
        admission.request,
        namespace=admission.namespace,
        seq=row.fresh_seq,
        vector_clock=admission.vector_clock,
        read_set=(),
        attempt=1,
        token=admission.token,
        lease_seconds=admission.lease_seconds,
        lease_expires_at=instant(row.fresh_lease_micros),
    )


def _ticket(admission: Admission, row: Any) -> PreparedEffect:
    clock = stored_clock(row.fresh_clock) if row.fresh_observing else admission.vector_clock
    return PreparedEffect.admitted(
        admission.request,
        namespace=admission.namespace,
        seq=row.fresh_seq,
        vector_clock=clock,
        read_set=admission.read_set,
        attempt=row.fresh_attempt,
        token=admission.token,
        lease_seconds=admission.lease_seconds,
        lease_expires_at=instant(row.fresh_lease_micros),
        observing=row.fresh_observing,
    )


def on_record(admission: Admission, row: Any) -> Verdict:
    """Gate 1: what the intent's current attempt says."""
    if row.state == State.RELEASED:
        return Replace(row.attempt, takeover=False)
    require_same_action(admission.request, row, row)
    if row.state == State.COMMITTED:
        return _replay(admission, row)
    if row.state == State.IN_FLIGHT and row.token == admission.token:
        return admitted(_own(admission, row))
    if row.state == State.EXECUTED:
        return Undecided()
    if row.state == State.IN_FLIGHT and row.lease_live:
        raise in_flight(admission.request.intent, row)
    unheard = row.state == State.IN_FLIGHT or (row.failure == Cause.LEASE_EXPIRED and not row.has_result)
    if unheard and row.on_lease_expiry == LeaseExpiry.TAKEOVER:
        return Replace(row.attempt, takeover=True)
    if row.state == State.IN_FLIGHT:
        return Fence(row.attempt)
    raise IntentFailed(
        intent=admission.request.intent,
        attempt=row.attempt,
        state=row.state,
        reason=row.reason,
        way_out=WAY_OUT,
        verifiable=unheard and row.on_lease_expiry == LeaseExpiry.VERIFY,
    )


def sealed(admission: Admission, row: Any) -> Replay:
    """The same for an intent whose certificate was found: that decides, for good."""
    attempt = row.attempt
    found = certificate(row, admission.namespace, attempt)
    require_same_action(admission.request, row, found)
    return trusted(Replay, {"certificate": found, "attempt": attempt})


def _replay(admission: Admission, row: Any) -> Replay:
    attempt = row.attempt
    return trusted(Replay, {"certificate": certificate(row, admission.namespace, attempt), "attempt": attempt})


def _own(admission: Admission, row: Any) -> PreparedEffect:
    """The ticket of an admission whose answer was lost on the way."""
    return PreparedEffect.admitted(
        admission.request,
        namespace=admission.namespace,
        seq=row.seq,
        vector_clock=stored_clock(row.vector_clock),
        read_set=admission.read_set,
        attempt=row.attempt,
        token=admission.token,
        lease_seconds=admission.lease_seconds,
        lease_expires_at=instant(row.lease_micros),
        observing=row.observing,
    )
