"""What the tools answer: the original's JSON shapes, and what this library adds beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from effectfence_pg.errors import Blocker  # noqa: TC001 (pydantic reads it at run time)
from effectfence_pg.mcp.schemas import Json  # noqa: TC001
from effectfence_pg.values import EffectStatus, FallenEffect, Held, PreparedEffect, ReadSetEntry, VectorClock
from effectfence_pg.values.names import Text  # noqa: TC001
from effectfence_pg.values.requests import CertificateHash, Seq  # noqa: TC001

if TYPE_CHECKING:
    from effectfence_pg.values import EffectCert, RolledBack


class Certificate(BaseModel):
    """A certificate in the original's form: the ten hashed fields and their hash."""

    intent: Text
    parent: CertificateHash | None
    domain: Text
    seq: Seq
    tool: Text
    args: Json
    result: Json
    vector_clock: VectorClock
    read_set: tuple[ReadSetEntry, ...]
    agent: Text
    hash: CertificateHash


class Prepared(BaseModel):
    """`fresh`: run the tool, then commit `prepared`. `already_done`: use `cert.result`, and run nothing."""

    status: Literal["fresh", "already_done"]
    prepared: PreparedEffect | None = None
    cert: Certificate | None = None
    attempt: int | None = Field(None, description="The attempt, counted from 1.")


class Committed(BaseModel):
    """`committed`: the certificate. `held`: on record, its certificate waits for `blockers` and the branch."""

    status: Literal["committed", "held"]
    cert: Certificate | None = None
    intent: str
    attempt: int
    blockers: tuple[Blocker, ...] = ()


class Aborted(BaseModel):
    """What was given up, and what fell with it, dependents first."""

    status: Literal["aborted"]
    intent: str
    attempt: int
    state: str = Field(description="The state it is in now.")
    effects: tuple[FallenEffect, ...] = ()


class Refusals(BaseModel):
    """The original's four causes."""

    stale_read_set: int
    domain_race: int
    in_flight: int
    prior_failure: int


class Stats(BaseModel):
    """What this server saw since it was started."""

    admitted: int
    replayed: int
    refused: Refusals
    total_attempts: int
    prevented: int
    log_line: str
    refused_by_code: dict[str, int]


class Observed(BaseModel):
    """Hand `entries` to fence_prepare as its read_set."""

    entries: tuple[ReadSetEntry, ...]


class Renewed(BaseModel):
    """The ticket with the end of its new lease."""

    status: Literal["renewed"]
    prepared: PreparedEffect


class Status(EffectStatus):
    """Where an action stands."""

    # The same certificate, in the form that is written.
    certificate: Certificate | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class Promoted(BaseModel):
    """All of it committed; 0 effects when it was before."""

    status: Literal["committed"]
    branch: str | None = None
    effects: int


class Node(BaseModel):
    """An effect of a lineage."""

    intent: str
    attempt: int
    state: str
    certificate: str | None
    domain: str
    seq: int
    tool: str
    agent: str
    depth: int


class Edge(BaseModel):
    """One effect observed another: intents with their attempts."""

    observer: tuple[str, int]
    observed: tuple[str, int]
    via: str


class Graph(BaseModel):
    """A lineage, the certificate that was asked for first."""

    root: str
    dependents: bool
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def committed(outcome: EffectCert | Held, prepared: PreparedEffect) -> dict[str, Any]:
    """The answer to a commit."""
    named = {"intent": prepared.intent, "attempt": prepared.attempt}
    if isinstance(outcome, Held):
        return {"status": "held", **outcome.model_dump(mode="json")}
    return {"status": "committed", "cert": outcome.wire(), **named}


def aborted(done: RolledBack) -> dict[str, Any]:
    """The answer to an abort."""
    return {"status": "aborted", **done.model_dump(mode="json")}


def status(found: EffectStatus) -> dict[str, Any]:
    """The answer to a question about an intent."""
    wire = None if found.certificate is None else found.certificate.wire()
    return {**found.model_dump(mode="json", exclude={"certificate"}), "certificate": wire}
