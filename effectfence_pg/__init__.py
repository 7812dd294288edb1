"""A durable fence between AI agents and the world, on PostgreSQL.

Exactly one attempt runs the side effect; everybody else gets its recorded outcome or a refusal they can act on.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from effectfence_pg.async_fence import AsyncFence
    from effectfence_pg.async_repository import AsyncFenceRepository
    from effectfence_pg.errors import (
        AttemptMismatch,
        Blocker,
        BranchDecided,
        ClosureAborted,
        ClosurePending,
        ClosureTooLarge,
        CommitConflict,
        DatabaseEncodingError,
        DatabaseFailure,
        DatabaseUnavailable,
        DomainRace,
        FenceClosed,
        FenceError,
        IntentFailed,
        IntentInFlight,
        IntentMismatch,
        InvalidRequest,
        IsolationTooWeak,
        LeaseLost,
        MovedEntry,
        NotReconcilable,
        PermissionDenied,
        ReadSetStale,
        ReadSetUnsettled,
        ResultNotRecordable,
        ResultNotReplayable,
        RetriesExhausted,
        SchemaVersionError,
        SerializationConflict,
        TicketMismatch,
        ToolUnfinished,
        UnknownBranch,
        UnknownIntent,
        UnknownParent,
        UnknownTicket,
        UnsettledEntry,
    )
    from effectfence_pg.fence import Fence
    from effectfence_pg.repository import FenceRepository, is_retryable
    from effectfence_pg.running.current import CurrentEffect, current_effect
    from effectfence_pg.running.messages import tool_message
    from effectfence_pg.running.naming import DerivedIntentWarning
    from effectfence_pg.running.proof import never_sent
    from effectfence_pg.running.runs import DidNotHappen, Happened, Ran
    from effectfence_pg.values import (
        Aborted,
        AbortEffect,
        Basis,
        ClosureMode,
        Committed,
        Compensation,
        EffectCert,
        EffectRequest,
        EffectStatus,
        FallenEffect,
        FenceConfig,
        FenceStats,
        Fresh,
        Held,
        LeaseExpiry,
        OnStale,
        Outcome,
        Pending,
        PreparedEffect,
        ReadSetEntry,
        Replay,
        RolledBack,
        Settled,
        VectorClock,
        certificate_body,
        certificate_hash,
    )

__all__ = [
    "AbortEffect",
    "Aborted",
    "AsyncFence",
    "AsyncFenceRepository",
    "AttemptMismatch",
    "Basis",
    "Blocker",
    "BranchDecided",
    "ClosureAborted",
    "ClosureMode",
    "ClosurePending",
    "ClosureTooLarge",
    "CommitConflict",
    "Committed",
    "Compensation",
    "CurrentEffect",
    "DatabaseEncodingError",
    "DatabaseFailure",
    "DatabaseUnavailable",
    "DerivedIntentWarning",
    "DidNotHappen",
    "DomainRace",
    "EffectCert",
    "EffectRequest",
    "EffectStatus",
    "FallenEffect",
    "Fence",
    "FenceClosed",
    "FenceConfig",
    "FenceError",
    "FenceRepository",
    "FenceStats",
    "Fresh",
    "Happened",
    "Held",
    "IntentFailed",
    "IntentInFlight",
    "IntentMismatch",
    "InvalidRequest",
    "IsolationTooWeak",
    "LeaseExpiry",
    "LeaseLost",
    "MovedEntry",
    "NotReconcilable",
    "OnStale",
    "Outcome",
    "Pending",
    "PermissionDenied",
    "PreparedEffect",
    "Ran",
    "ReadSetEntry",
    "ReadSetStale",
    "ReadSetUnsettled",
    "Replay",
    "ResultNotRecordable",
    "ResultNotReplayable",
    "RetriesExhausted",
    "RolledBack",
    "SchemaVersionError",
    "SerializationConflict",
    "Settled",
    "TicketMismatch",
    "ToolUnfinished",
    "UnknownBranch",
    "UnknownIntent",
    "UnknownParent",
    "UnknownTicket",
    "UnsettledEntry",
    "VectorClock",
    "certificate_body",
    "certificate_hash",
    "current_effect",
    "is_retryable",
    "never_sent",
    "tool_message",
]

_ELSEWHERE = {
    "AsyncFence": "async_fence",
    "AsyncFenceRepository": "async_repository",
    "CurrentEffect": "running.current",
    "DerivedIntentWarning": "running.naming",
    "DidNotHappen": "running.runs",
    "Fence": "fence",
    "FenceRepository": "repository",
    "Happened": "running.runs",
    "Ran": "running.runs",
    "current_effect": "running.current",
    "is_retryable": "repository",
    "never_sent": "running.proof",
    "tool_message": "running.messages",
}
"""The module of a public name that is neither an error nor a value."""

_OF_MANY = {"protocol", "running", "sql", "waiting"}
"""Packages that import none of their modules: all that a fence needs of them is there once the fences are."""

if not TYPE_CHECKING:  # A checker would take any name for one of these.

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first asked for: a command that needs no database starts without its libraries.

        And a module likewise, `effectfence_pg.migrate` for one: whoever imports the package has all of it.
        """
        if name in __all__:
            for place in (_ELSEWHERE[name],) if name in _ELSEWHERE else ("errors", "values"):
                module = import_module(f"{__name__}.{place}")
                if hasattr(module, name):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
            for place in ("fence", "async_fence") if name in _OF_MANY else ():
                import_module(f"{__name__}.{place}")
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
