"""The refusals of prepare, gate by gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectfence_pg.errors import (
    BranchDecided,
    DomainRace,
    IntentInFlight,
    IntentMismatch,
    NotReconcilable,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownIntent,
    UnknownParent,
    UnsettledEntry,
)
from effectfence_pg.protocol.states import State
from effectfence_pg.protocol.verdicts import blockers, moved_entries
from effectfence_pg.values.identity import Fingerprint, difference, key_of

if TYPE_CHECKING:
    from effectfence_pg.protocol.asked import Admission, Target
    from effectfence_pg.values import EffectRequest


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


def require_same_action(request: EffectRequest, row: Any, acts: Any) -> None:
    """Refuse another action under the same intent, before any other verdict.

    Args:
        request: What is asked.
        row: The digests on record.
        acts: What has the domain and the tool on record.

    Raises:
        IntentMismatch: Domain, tool, identity or arguments differ, or what was declared as identity does.
    """
    if row.args_digest == request.fingerprint.args_digest:
        return
    fields = None if row.identity_fields is None else tuple(row.identity_fields)
    stored = Fingerprint(bytes(row.args_digest), bytes(row.identity_digest), fields)
    given = request.fingerprint
    field = difference(stored, given, domains=(acts.domain, request.domain), tools=(acts.tool, request.tool))
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
