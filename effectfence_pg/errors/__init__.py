"""One class per refusal, each with a stable `code`, whether it is `retryable`, an `advice`, and its facts.

Split by where the cause lies: `caller` (the call itself), `verdicts` (what others did), `database`.
"""

from effectfence_pg.errors.base import Blocker, FenceError, MovedEntry, UnsettledEntry
from effectfence_pg.errors.caller import (
    AttemptMismatch,
    BranchDecided,
    IntentMismatch,
    InvalidRequest,
    NotReconcilable,
    ResultNotRecordable,
    ResultNotReplayable,
    TicketMismatch,
    ToolUnfinished,
    UnknownBranch,
    UnknownIntent,
    UnknownParent,
    UnknownTicket,
)
from effectfence_pg.errors.database import (
    DatabaseEncodingError,
    DatabaseUnavailable,
    IsolationTooWeak,
    PermissionDenied,
    RetriesExhausted,
    SchemaVersionError,
    SerializationConflict,
)
from effectfence_pg.errors.verdicts import (
    ClosureAborted,
    ClosurePending,
    ClosureTooLarge,
    CommitConflict,
    DomainRace,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    ReadSetStale,
    ReadSetUnsettled,
)

__all__ = [
    "AttemptMismatch",
    "Blocker",
    "BranchDecided",
    "ClosureAborted",
    "ClosurePending",
    "ClosureTooLarge",
    "CommitConflict",
    "DatabaseEncodingError",
    "DatabaseUnavailable",
    "DomainRace",
    "FenceError",
    "IntentFailed",
    "IntentInFlight",
    "IntentMismatch",
    "InvalidRequest",
    "IsolationTooWeak",
    "LeaseLost",
    "MovedEntry",
    "NotReconcilable",
    "PermissionDenied",
    "ReadSetStale",
    "ReadSetUnsettled",
    "ResultNotRecordable",
    "ResultNotReplayable",
    "RetriesExhausted",
    "SchemaVersionError",
    "SerializationConflict",
    "TicketMismatch",
    "ToolUnfinished",
    "UnknownBranch",
    "UnknownIntent",
    "UnknownParent",
    "UnknownTicket",
    "UnsettledEntry",
]
