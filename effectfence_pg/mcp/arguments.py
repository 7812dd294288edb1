"""What the tools take: the fence's own values, with the original's argument names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from effectfence_pg.mcp.schemas import Json  # noqa: TC001 (pydantic reads it at run time)
from effectfence_pg.values import (
    MAX_LEASE_SECONDS,
    AbortEffect,
    Basis,
    ClosureMode,
    EffectRequest,
    Outcome,
    PreparedEffect,
)
from effectfence_pg.values.names import Name  # noqa: TC001 (pydantic reads it at run time)

Seconds = Annotated[float, Field(ge=0, le=MAX_LEASE_SECONDS, allow_inf_nan=False)]
MAX_DEPTH = 2**31 - 1


class _Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Prepare(EffectRequest):
    """One attempt of one action."""

    args: Json = Field(default_factory=dict, description="The tool's arguments, any JSON value; kept as they are now.")
    wait_seconds: Seconds | None = Field(
        None, description="How long to wait for another holder's outcome instead of being refused."
    )


class Ticket(_Arguments):
    """A ticket, as fence_prepare gave it."""

    prepared: PreparedEffect = Field(description="What fence_prepare answered, passed back verbatim.")


class Commit(Ticket):
    """What the tool returned."""

    result: Json = Field(description="What the tool returned, any JSON value.")
    closure: ClosureMode = Field(
        ClosureMode.REQUIRE, description="What to do while something that the effect observed is undecided."
    )
    timeout_seconds: Seconds | None = Field(None, description="How long closure 'wait' waits.")


class Abort(Ticket):
    """Why an attempt is given up."""

    reason: str = Field(description="Why, for people.")
    effect: AbortEffect = Field(
        AbortEffect.UNKNOWN,
        description="'none' only when nothing can have happened: the action becomes runnable again.",
    )


class Nothing(_Arguments):
    """No arguments."""


class Observe(_Arguments):
    """Domains to read before a decision."""

    domains: tuple[Name, ...] = Field(description="The domains that the decision will rest on.")


class Intent(_Arguments):
    """An action."""

    intent: Name = Field(description="The action's id.")


class Promote(_Arguments):
    """An action or a branch, one of them."""

    intent: str | None = Field(None, description="An action without a branch; or name a branch.")
    branch: str | None = Field(None, description="A branch; its effects are promoted by it only.")
    actor: str = Field("operator", description="Who decides, for the record.")


class Lineage(_Arguments):
    """A certificate, and how far to look."""

    name: Name = Field(description="A certificate's hash, or the intent of a committed action.")
    dependents: bool = Field(default=False, description="What rests on it, instead of what it rests on.")
    depth: int | None = Field(None, ge=0, le=MAX_DEPTH, description="How many steps to go; all when not given.")


class Reconcile(_Arguments):
    """What an operator found out about an attempt whose outcome is open."""

    intent: Name = Field(description="The action's id.")
    attempt: int = Field(ge=1, le=2**31 - 1, description="The attempt that was judged.")
    outcome: Outcome = Field(description="What really happened.")
    evidence: Json = Field(description="How it is known, any JSON value.")
    operator: Name = Field(description="Who says so.")
    result: Json = Field(None, description="What the tool returned, for 'happened'.")
    basis: Basis | None = Field(None, description="Why the old holder cannot act any more, for 'did_not_happen'.")
    over: bool = Field(
        default=False, description="For 'happened': mint although something it observed was rolled back."
    )

    def given(self) -> dict[str, Any]:
        """As keyword arguments of the verb, without the intent."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "intent"}
