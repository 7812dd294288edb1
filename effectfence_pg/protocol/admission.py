"""What the verdict row of prepare means: admitted, replayed, refused, or one more step over an expired lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from effectfence_pg.errors import (
    BranchDecided,
    DomainRace,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    NotReconcilable,
    ReadSetStale,
    ReadSetUnsettled,
    SerializationConflict,
    UnknownIntent,
    UnknownParent,
    UnsettledEntry,
)
from effectfence_pg.protocol.states import Cause, State
from effectfence_pg.protocol.verdicts import blockers, certificate, moved_entries, require_serializable, stored_clock
from effectfence_pg.values import EffectRequest, Fresh, LeaseExpiry, PreparedEffect, ReadSetEntry, Replay, VectorClock
from effectfence_pg.values.identity import Fingerprint, difference, key_of
from effectfence_pg.values.trusted import trusted

WAY_OUT = "reconcile it with what really happened"


@dataclass(frozen=True, slots=True)
class Target:
    """The attempt that a compensation undoes."""

    intent: str
    attempt: int


@dataclass(slots=True)
class Admission:
    """One call of prepare: what was asked, for whom, and the token that the call brings along.

    The token belongs to the call and not to the statement, so that a call whose answer was lost recognises its own admission.
    """

    request: EffectRequest
    namespace: str
    lease_seconds: float
    on_lease_expiry: LeaseExpiry
    read_set: tuple[ReadSetEntry, ...]
    undoes: Target | None = None
    _token: UUID | None = None
    _clock: VectorClock | None = None

    @property
    def token(self) -> UUID:
        """Made when it is first needed: a replay needs none."""
        if self._token is None:
            self._token = uuid4()
        return self._token

    @property
    def vector_clock(self) -> VectorClock:
        """The clock of an effect that observed nothing."""
        if self._clock is None:
            self._clock = self.request.known_clock.tick(self.request.agent)
        return self._clock


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


def effective_read_set(request: EffectRequest) -> tuple[ReadSetEntry, ...]:
    """The read set with `expected_seq` in it, which is short for an entry of the request's own domain."""
    expected = request.expected_seq
    if expected is None or any(entry.domain == request.domain for entry in request.read_set):
        return request.read_set
    return (*request.read_set, ReadSetEntry(domain=request.domain, seq=expected))


def rests(admission: Admission) -> bool:
    """Whether the request rests on anything that has to be read, or belongs to a plan."""
    request = admission.request
    plan = request.branch is not None or request.compensation is not None or admission.undoes is not None
    return bool(plan or admission.read_set or request.observes or request.parent)


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
        lease_expires_at=row.fresh_lease_expires_at,
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
        lease_expires_at=row.fresh_lease_expires_at,
        observing=row.fresh_observing,
    )


def on_record(admission: Admission, row: Any) -> Verdict:
    """Gate 1: what the intent's current attempt says."""
    if row.state == State.RELEASED:
        return Replace(row.attempt, takeover=False)
    require_same_action(admission.request, row)
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
    require_same_action(admission.request, row)
    return _replay(admission, row)


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
        lease_expires_at=row.lease_expires_at,
        observing=row.observing,
    )


def in_flight(intent: str, row: Any, waits_for: Any = ()) -> IntentInFlight:
    """The refusal while somebody else holds the intent."""
    held = row.state == State.EXECUTED
    return IntentInFlight(
        intent=intent,
        attempt=row.attempt,
        holder=row.agent,
        since=row.admitted_at,
        retry_after_seconds=None if held else float(row.lease_left_seconds),
        held=held,
        blockers=blockers(waits_for),
    )


def require_same_action(request: EffectRequest, row: Any) -> None:
    """Refuse another action under the same intent, before any other verdict.

    Raises:
        IntentMismatch: Domain, tool, identity or arguments differ, or what was declared as identity does.
    """
    if row.args_digest == request.fingerprint.args_digest:
        return
    fields = None if row.identity_fields is None else tuple(row.identity_fields)
    stored = Fingerprint(bytes(row.args_digest), bytes(row.identity_digest), fields)
    given = request.fingerprint
    field = difference(stored, given, domains=(row.domain, request.domain), tools=(row.tool, request.tool))
    if field is None:
        return
    raise IntentMismatch(
        intent=request.intent,
        attempt=row.attempt,
        field=field,
        stored_identity=stored.identity_digest.hex(),
        given_identity=given.identity_digest.hex(),
        stored_args=stored.args_digest.hex(),
        given_args=given.args_digest.hex(),
        stored_declaration=stored.identity_fields,
        given_declaration=given.identity_fields,
    )


def refuse_at_gates(admission: Admission, row: Any) -> None:
    """Gates 2 to 4: parent, read set and observations, expected number.

    Raises:
        UnknownParent, ReadSetStale, ReadSetUnsettled, UnknownIntent, DomainRace: The first gate that refuses.
    """
    request, entries = admission.request, admission.read_set
    if row.decided_branch is not None:
        raise BranchDecided(branch=request.branch or "", state=row.decided_branch)
    if row.unknown_parent:
        raise UnknownParent(parent=request.parent or "")
    moved = moved_entries(entries, row.moved)
    raced = [entry for entry in moved if entry.domain == request.domain and request.expected_seq is not None]
    if moved and len(raced) < len(moved):
        raise ReadSetStale(entries=moved, intent=request.intent)
    if raced:
        raise DomainRace(domain=request.domain, expected=raced[0].seq, actual=raced[0].live)
    _refuse_unsettled(admission, row)
    if admission.undoes is not None:
        refuse_target(admission.undoes, row)


def refuse_target(target: Target, row: Any) -> None:
    """What stands against undoing an attempt: it is not fenced, another one is current, or its tool may still be running.

    Raises:
        UnknownIntent, IntentInFlight, NotReconcilable: Nothing was changed.
    """
    if row.target_state is None:
        raise UnknownIntent(intent=target.intent)
    if row.target_current and row.target_live:
        raise IntentInFlight(intent=target.intent, attempt=target.attempt, holder="its holder")
    if not row.target_current or row.target_state not in {State.FAILED, State.ABORTED}:
        raise NotReconcilable(
            intent=target.intent, attempt=target.attempt, state=row.target_state, outcome="compensation"
        )


def _refuse_unsettled(admission: Admission, row: Any) -> None:
    request, entries = admission.request, admission.read_set
    by_position: dict[int, list[tuple[str, int, str]]] = {
        at: [] for at, entry in enumerate(entries, start=1) if not entry.settled
    }
    for at, *effect in row.unsettled:
        by_position.setdefault(at, []).append((effect[0], effect[1], effect[2]))
    unsettled = tuple(
        UnsettledEntry(entries[at - 1].domain, entries[at - 1].seq, blockers(effects))
        for at, effects in sorted(by_position.items())
    )
    if unsettled:
        raise ReadSetUnsettled(entries=unsettled, intent=request.intent)
    if row.unknown_intents:
        missing = set(row.unknown_intents)
        raise UnknownIntent(intent=next(name for name in request.observes if key_of(name).hex() in missing))
    for intent, attempt, state in row.unobservable:
        entry = UnsettledEntry(intent, attempt, blockers([(intent, attempt, state)]))
        raise ReadSetUnsettled(entries=(entry,), intent=request.intent)
