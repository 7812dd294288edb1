"""The states of an effect and every move between them.

This table is the only place where a move is allowed or forbidden: the CHECK constraints, the SQL and the README's diagram
are all made from it.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """Where an effect (one admitted attempt of an intent) stands."""

    IN_FLIGHT = "in_flight"
    EXECUTED = "executed"
    COMMITTED = "committed"
    FAILED = "failed"
    ABORTED = "aborted"
    RELEASED = "released"
    SUPERSEDED = "superseded"


class Cause(StrEnum):
    """Why a transition happened; stored with every transition row."""

    ADMITTED = "admitted"
    COMMITTED = "committed"
    EXECUTED = "executed"
    LATE_COMPLETION = "late_completion"
    LATE_EVIDENCE = "late_evidence"
    LEASE_EXPIRED = "lease_expired"
    TAKEOVER = "takeover"
    READ_SET_STALE = "read_set_stale"
    CLOSURE_DEAD = "closure_dead"
    CASCADE = "cascade"
    PROMOTED = "promoted"
    SETTLED = "settled"
    BRANCH_ABORTED = "branch_aborted"
    INTENT_ABORTED = "intent_aborted"
    COMPENSATED = "compensated"
    OUTCOME_UNKNOWN = "outcome_unknown"
    NO_EFFECT = "no_effect"
    ROLLED_BACK = "rolled_back"
    REPORTED = "reported"
    RECONCILED_HAPPENED = "reconciled_happened"
    RECONCILED_OVER = "reconciled_over"
    RECONCILED_DID_NOT_HAPPEN = "reconciled_did_not_happen"
    RECONCILED_COMPENSATED = "reconciled_compensated"


TRANSITIONS: Final = MappingProxyType(
    {
        State.IN_FLIGHT: frozenset(
            {State.EXECUTED, State.COMMITTED, State.FAILED, State.ABORTED, State.RELEASED, State.SUPERSEDED}
        ),
        State.EXECUTED: frozenset({State.COMMITTED, State.ABORTED}),
        State.COMMITTED: frozenset[State](),
        State.FAILED: frozenset({State.COMMITTED, State.EXECUTED, State.ABORTED, State.RELEASED, State.SUPERSEDED}),
        State.ABORTED: frozenset({State.RELEASED, State.COMMITTED, State.EXECUTED}),
        State.RELEASED: frozenset({State.FAILED}),
        State.SUPERSEDED: frozenset[State](),
    }
)
"""Every allowed move. `released` to `failed` is late evidence; everything else is described beside its verb."""

DEAD: Final = (State.FAILED, State.ABORTED, State.RELEASED, State.SUPERSEDED)
"""In a closure all four count alike; entering one of them advances the domain and cascades."""

UNSETTLED: Final = (State.IN_FLIGHT, State.FAILED, State.ABORTED)
"""While an effect of a domain is in one of these, what the domain holds cannot be relied on."""


class BranchState(StrEnum):
    """Where a branch stands; it is decided once."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


SETTLED_FOR_GOOD: Final = (State.COMMITTED, State.RELEASED, State.SUPERSEDED)
"""States the settled watermark of a domain may pass (late evidence lowers it again)."""

CASCADES_TO: Final = (State.IN_FLIGHT, State.EXECUTED, State.FAILED)
"""A dependent in one of these becomes aborted when what it observed dies."""
