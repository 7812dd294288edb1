"""A durable fence between AI agents and the world, on PostgreSQL.

Exactly one attempt runs the side effect; everybody else gets its recorded outcome or a refusal they can act on.
"""

from effectfence_pg.errors import *  # noqa: F403
from effectfence_pg.errors import __all__ as _errors
from effectfence_pg.fence import Fence
from effectfence_pg.repository import FenceRepository, is_retryable
from effectfence_pg.values import (
    AbortEffect,
    Basis,
    ClosureMode,
    Compensation,
    EffectCert,
    EffectRequest,
    EffectStatus,
    FenceConfig,
    FenceStats,
    Fresh,
    Held,
    LeaseExpiry,
    OnStale,
    Outcome,
    PreparedEffect,
    ReadSetEntry,
    Replay,
    RolledBack,
    VectorClock,
    certificate_body,
    certificate_hash,
)

__all__ = [
    "AbortEffect",
    "Basis",
    "ClosureMode",
    "Compensation",
    "EffectCert",
    "EffectRequest",
    "EffectStatus",
    "Fence",
    "FenceConfig",
    "FenceRepository",
    "FenceStats",
    "Fresh",
    "Held",
    "LeaseExpiry",
    "OnStale",
    "Outcome",
    "PreparedEffect",
    "ReadSetEntry",
    "Replay",
    "RolledBack",
    "VectorClock",
    "certificate_body",
    "certificate_hash",
    "is_retryable",
]
__all__ += _errors
