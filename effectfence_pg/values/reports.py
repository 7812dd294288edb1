"""What the fence tells about itself: the status of an intent, and what this process saw."""

from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, computed_field

from effectfence_pg.errors import Blocker
from effectfence_pg.values.certificates import EffectCert

_WIRE_REFUSALS = {
    "stale_read_set": ("read_set_stale", "read_set_unsettled"),
    "domain_race": ("domain_race",),
    "in_flight": ("intent_in_flight",),
    "prior_failure": ("intent_failed",),
}


class EffectStatus(BaseModel):
    """The current attempt of an intent. Times are the database's.

    Attributes:
        namespace: The tenant.
        intent: The action's id.
        attempt: The current attempt, counted from 1.
        state: The state it is in.
        domain: The contention scope.
        seq: The number it took.
        tool: The tool's name.
        agent: Who acts.
        admitted_at: When it was admitted.
        renewed_at: When its lease was last renewed.
        lease_expires_at: When its lease runs out; None when it holds none.
        lease_live: Whether it holds a lease that has not run out.
        reason: Why it is in this state.
        failure: What kind of failure it is, when it is one.
        has_result: Whether a result is on record.
        result: The result, when it was asked for.
        certificate: The certificate, once it is committed.
        blockers: What an undecided effect waits for.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    namespace: str
    intent: str
    attempt: int
    state: str
    domain: str
    seq: int
    tool: str
    agent: str
    admitted_at: AwareDatetime
    renewed_at: AwareDatetime | None = None
    lease_expires_at: AwareDatetime | None = None
    lease_live: bool = False
    reason: str | None = None
    failure: str | None = None
    has_result: bool = False
    result: Any = None
    certificate: EffectCert | None = None
    blockers: tuple[Blocker, ...] = ()


class FenceStats(BaseModel):
    """What this process saw. `refused` counts by error code."""

    model_config = ConfigDict(frozen=True)

    admitted: int = 0
    replayed: int = 0
    refused: dict[str, int] = Field(default_factory=dict)

    @computed_field
    @property
    def total_attempts(self) -> int:
        """Attempts that asked: admitted, replayed and refused."""
        return self.admitted + self.prevented

    @computed_field
    @property
    def prevented(self) -> int:
        """Attempts that were kept from running the effect: replayed and refused."""
        return self.replayed + sum(self.refused.values())

    @computed_field
    @property
    def log_line(self) -> str:
        """The figures in one line."""
        figures = {
            "attempts": self.total_attempts,
            "admitted": self.admitted,
            "replayed": self.replayed,
            "prevented": self.prevented,
            **dict(sorted(self.refused.items())),
        }
        return " ".join(f"{name}={count}" for name, count in figures.items())

    def wire(self) -> dict[str, Any]:
        """Return the original's JSON form, whose four causes of refusal are a part of ours."""
        causes = {name: sum(self.refused.get(code, 0) for code in codes) for name, codes in _WIRE_REFUSALS.items()}
        return {
            "admitted": self.admitted,
            "replayed": self.replayed,
            "refused": causes,
            "total_attempts": self.total_attempts,
            "prevented": self.prevented,
            "log_line": self.log_line,
        }
