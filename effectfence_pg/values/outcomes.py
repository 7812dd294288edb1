"""What a decision about speculative effects did: committed, rolled back, or still pending."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from effectfence_pg.errors import Blocker
from effectfence_pg.values.requests import Compensation  # noqa: TC001 (pydantic reads it at run time)


class FallenEffect(BaseModel):
    """An effect that an abort ended.

    Attributes:
        intent: The action's id.
        attempt: The attempt.
        state: The state it was in before.
        compensation: How to undo it, when the request registered that.
        due: Whether it has a result on record, so that there is something to undo. One in flight may still report.
    """

    model_config = ConfigDict(frozen=True)

    intent: str
    attempt: int
    state: str
    compensation: Compensation | None = None
    due: bool = False

    def wire(self) -> dict[str, object]:
        """Return the JSON form."""
        return self.model_dump(mode="json")


class RolledBack(BaseModel):
    """What an abort of one attempt did.

    Attributes:
        intent: The action's id.
        attempt: The attempt.
        state: The state it is in now.
        effects: Everything that was ended, dependents first; the attempt itself included when this call ended it.
    """

    model_config = ConfigDict(frozen=True)

    intent: str
    attempt: int
    state: str
    effects: tuple[FallenEffect, ...] = ()

    @property
    def dependents(self) -> tuple[Blocker, ...]:
        """The other effects that fell with it, as they were before."""
        own = (self.intent, self.attempt)
        return tuple(Blocker(e.intent, e.attempt, e.state) for e in self.effects if (e.intent, e.attempt) != own)


class Committed(BaseModel):
    """All of it committed.

    Attributes:
        branch: The branch, when one was decided.
        effects: How many effects this call committed; 0 when they were committed before.
    """

    model_config = ConfigDict(frozen=True)

    branch: str | None = None
    effects: int = 0


class Aborted(BaseModel):
    """All of it is rolled back.

    Attributes:
        branch: The branch, when one was decided.
        attempt: The attempt, when it was about an intent.
        effects: Everything that this call ended, dependents first.
        blockers: The dead members that decided it.
    """

    model_config = ConfigDict(frozen=True)

    branch: str | None = None
    attempt: int | None = None
    effects: tuple[FallenEffect, ...] = ()
    blockers: tuple[Blocker, ...] = ()


class Pending(BaseModel):
    """Nothing moved: some members have not run yet, or belong to another open branch.

    Attributes:
        branch: The branch that was to be decided.
        attempt: The attempt, when it was about an intent.
        blockers: The members that it waits for.
    """

    model_config = ConfigDict(frozen=True)

    branch: str | None = None
    attempt: int | None = None
    blockers: tuple[Blocker, ...] = ()


class Settled(BaseModel):
    """What settling did: leases fenced, effects committed, effects aborted."""

    model_config = ConfigDict(frozen=True)

    fenced: int = 0
    committed: int = 0
    aborted: int = 0
