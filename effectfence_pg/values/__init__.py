"""Frozen values: requests, tickets, certificates, vector clocks, policies, canonical JSON. Nothing here does I/O."""

from effectfence_pg.values.canonical import JsonValue, canonical_json, read_json, to_json_value, value_digest
from effectfence_pg.values.captured import invalid_request
from effectfence_pg.values.certificates import HASHED_FIELDS, EffectCert, certificate_body, certificate_hash
from effectfence_pg.values.clocks import MAX_COUNT, VectorClock
from effectfence_pg.values.identity import Fingerprint, difference, fingerprint, key_of, same_action
from effectfence_pg.values.names import MAX_NAME_BYTES, MAX_NAMESPACE_BYTES, check_name
from effectfence_pg.values.outcomes import Aborted, Committed, FallenEffect, Pending, RolledBack, Settled
from effectfence_pg.values.policies import (
    MAX_LEASE_SECONDS,
    AbortEffect,
    Basis,
    ClosureMode,
    FenceConfig,
    LeaseExpiry,
    OnStale,
    Outcome,
)
from effectfence_pg.values.reports import EffectStatus, FenceStats
from effectfence_pg.values.requests import MAX_SEQ, Compensation, EffectRequest, ReadSetEntry, parse_request
from effectfence_pg.values.tickets import Fresh, Held, PreparedEffect, Replay, parse_prepared

__all__ = [
    "HASHED_FIELDS",
    "MAX_COUNT",
    "MAX_LEASE_SECONDS",
    "MAX_NAMESPACE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_SEQ",
    "AbortEffect",
    "Aborted",
    "Basis",
    "ClosureMode",
    "Committed",
    "Compensation",
    "EffectCert",
    "EffectRequest",
    "EffectStatus",
    "FallenEffect",
    "FenceConfig",
    "FenceStats",
    "Fingerprint",
    "Fresh",
    "Held",
    "JsonValue",
    "LeaseExpiry",
    "OnStale",
    "Outcome",
    "Pending",
    "PreparedEffect",
    "ReadSetEntry",
    "Replay",
    "RolledBack",
    "Settled",
    "VectorClock",
    "canonical_json",
    "certificate_body",
    "certificate_hash",
    "check_name",
    "difference",
    "fingerprint",
    "invalid_request",
    "key_of",
    "parse_prepared",
    "parse_request",
    "read_json",
    "same_action",
    "to_json_value",
    "value_digest",
]
