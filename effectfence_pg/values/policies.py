"""The choices a caller has, and the limits and defaults of a fence."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_LEASE_SECONDS = 604_800.0
"""The longest lease: a week."""


class LeaseExpiry(StrEnum):
    """What becomes of an effect whose lease ran out unheard of. The admitted request decides, not the duplicate."""

    FENCE = "fence"
    """The outcome is unknown: nobody runs it again until it is reconciled."""
    TAKEOVER = "takeover"
    """The next attempt takes over: for tools that are idempotent downstream."""
    VERIFY = "verify"
    """A hook asks the downstream system what happened."""


class OnStale(StrEnum):
    """What becomes of an effect that ran while its read set moved."""

    FAIL = "fail"
    CERTIFY = "certify"


class ClosureMode(StrEnum):
    """What commit does while something that the effect observed is undecided."""

    REQUIRE = "require"
    HOLD = "hold"
    WAIT = "wait"
    PROMOTE = "promote"


class AbortEffect(StrEnum):
    """What the caller of abort knows about the outcome."""

    UNKNOWN = "unknown"
    NONE = "none"


class Outcome(StrEnum):
    """What an operator found out about an unknown outcome."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    COMPENSATED = "compensated"


class Basis(StrEnum):
    """Why the old holder cannot act any more, which is what makes `did_not_happen` sound."""

    HOLDER_DEAD = "holder_dead"
    FENCED_DOWNSTREAM = "fenced_downstream"


LeaseSeconds = Annotated[float, Field(strict=True, gt=0, le=MAX_LEASE_SECONDS, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(strict=True, gt=0, le=MAX_LEASE_SECONDS, allow_inf_nan=False)]
_Bytes = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
_Entries = Annotated[int, Field(strict=True, ge=0, le=100_000)]


class FenceConfig(BaseModel):
    """The limits and defaults of a fence. Times in seconds, sizes in bytes of UTF-8.

    Attributes:
        lease_seconds: How long an effect may run unheard of, when the request does not say.
        renewal_fraction: The share of the lease after which a running tool's lease is renewed.
        on_lease_expiry: What becomes of an expired effect, when the request does not say.
        max_args_bytes: Canonical JSON of a request's args.
        max_result_bytes: Canonical JSON of a result.
        max_clock_entries: Agents in a request's known clock.
        max_read_set_entries: Domains in a request's read set.
        max_observed_intents: Intents that a request observes.
        max_closure_members: Effects that a commit or a promotion walks, the committed ones where the walk stops included.
        retry_deadline_seconds: How long serialization conflicts are retried.
        poll_initial_seconds: The first pause of a waiting call.
        poll_max_seconds: The longest pause of a waiting call.
        notify: Whether outcomes are sent and heard by NOTIFY, on one more connection and past any transaction pooler.
        pool_size: Connections that a fence keeps, when it makes its own engine.
        max_overflow: Connections beyond `pool_size` under load.
        connect_timeout_seconds: How long to try to connect.
        prepare_threshold: Executions before a statement is prepared on the server; None never prepares.
        application_name: How the connections name themselves to the server.
        row_security: Name the namespace to the server in every transaction, for row security by namespace.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    lease_seconds: LeaseSeconds = 60.0
    renewal_fraction: Annotated[float, Field(strict=True, gt=0, lt=1)] = 1 / 3
    on_lease_expiry: LeaseExpiry = LeaseExpiry.FENCE
    max_args_bytes: _Bytes = 1_048_576
    max_result_bytes: _Bytes = 67_108_864
    max_clock_entries: _Entries = 256
    max_read_set_entries: _Entries = 256
    max_observed_intents: _Entries = 256
    max_closure_members: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 100_000
    retry_deadline_seconds: _Seconds = 30.0
    poll_initial_seconds: _Seconds = 0.02
    poll_max_seconds: _Seconds = 1.0
    notify: Annotated[bool, Field(strict=True)] = False
    pool_size: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 5
    max_overflow: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 10
    connect_timeout_seconds: Annotated[int, Field(strict=True, ge=1, le=3_600)] = 10
    prepare_threshold: Annotated[int, Field(strict=True, ge=0)] | None = 5
    application_name: Annotated[str, Field(strict=True, min_length=1, max_length=63, pattern=r"^[ -~]+$")] = (
        "effectfence"
    )
    row_security: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _polls_in_order(self) -> FenceConfig:
        if self.poll_initial_seconds > self.poll_max_seconds:
            raise ValueError("poll_initial_seconds is longer than poll_max_seconds")
        return self
