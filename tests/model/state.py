"""What is stored, as immutable values, and the draft in which one verb changes it."""

from __future__ import annotations

from typing import NamedTuple

IN_FLIGHT, EXECUTED, COMMITTED = "in_flight", "executed", "committed"
FAILED, ABORTED, RELEASED, SUPERSEDED = "failed", "aborted", "released", "superseded"

DEAD = (FAILED, ABORTED, RELEASED, SUPERSEDED)
UNSETTLED = (IN_FLIGHT, FAILED, ABORTED)
CASCADES_TO = (IN_FLIGHT, EXECUTED, FAILED)
FENCED = (FAILED, ABORTED)

TRANSITIONS = {
    IN_FLIGHT: {EXECUTED, COMMITTED, FAILED, ABORTED, RELEASED, SUPERSEDED},
    EXECUTED: {COMMITTED, ABORTED},
    COMMITTED: set(),
    FAILED: {COMMITTED, EXECUTED, ABORTED, RELEASED, SUPERSEDED},
    ABORTED: {RELEASED, COMMITTED, EXECUTED},
    RELEASED: {FAILED},
    SUPERSEDED: set(),
}

LIVE, EXPIRED = "live", "expired"
OPEN = "open"
SYSTEM = "effectfence"
"""The actor when the fence itself acts."""

Key = tuple[str, int, int]
"""intent, the attempt of it that a compensation undoes (0 for an action of its own), attempt."""


class Request(NamedTuple):
    intent: str
    domain: str
    agent: str = "agent"
    fingerprint: str = "f"
    policy: str = "fence"
    on_stale: str = "fail"
    branch: str | None = None
    entries: tuple[tuple[str, int, bool], ...] = ()
    """(domain, seq, settled) of the read set."""
    expected_seq: int | None = None
    observes: tuple[str, ...] = ()
    parent: Key | None = None
    """The effect whose certificate is the parent."""
    clock: tuple[tuple[str, int], ...] = ()


class Effect(NamedTuple):
    intent: str
    undoes: int
    attempt: int
    state: str
    domain: str
    seq: int
    agent: str
    fingerprint: str = "f"
    policy: str = "fence"
    on_stale: str = "fail"
    branch: str | None = None
    lease: str | None = LIVE
    result: str | None = None
    asked: bool = False
    reads: tuple[tuple[str, int], ...] = ()
    observed: tuple[Key, ...] = ()
    clock: tuple[tuple[str, int], ...] = ()
    parent: Key | None = None
    failure: str | None = None
    took_over: bool = False
    evidence: tuple[str, ...] = ()
    """Late results that are not the intent's: of an attempt that was replaced or released."""
    over: tuple[tuple[str, int, str], ...] | None = None
    target: Key | None = None
    """What a compensation undoes."""

    @property
    def key(self) -> Key:
        return self[:3]

    @property
    def token(self) -> Key:
        """Unique per attempt, as the random one is."""
        return self[:3]


class Ticket(NamedTuple):
    intent: str
    undoes: int
    attempt: int
    token: Key
    domain: str
    seq: int
    fingerprint: str
    agent: str
    branch: str | None


class Move(NamedTuple):
    """One transition on record; from equals to when only evidence was added."""

    key: Key
    from_state: str | None
    to_state: str
    cause: str
    actor: str
    origin: Key | None = None


class State(NamedTuple):
    """One namespace. Certificates are the committed effects; edges are what each effect observed."""

    effects: tuple[Effect, ...] = ()
    domains: tuple[tuple[str, int], ...] = ()
    branches: tuple[tuple[str, str], ...] = ()

    def effect(self, key: Key) -> Effect | None:
        return next((e for e in self.effects if e[:3] == key), None)

    def current(self, intent: str, undoes: int = 0) -> Effect | None:
        return max((e for e in self.effects if e[:2] == (intent, undoes)), default=None)

    def live(self, domain: str) -> int:
        return next((seq for name, seq in self.domains if name == domain), 0)

    def branch(self, name: str | None) -> str | None:
        return next((state for branch, state in self.branches if branch == name), None)


class Verdict(NamedTuple):
    """What a verb answered: an outcome, or the code of a refusal."""

    code: str
    key: Key | None = None
    state: str | None = None
    blockers: tuple[tuple[str, int, str], ...] = ()
    """(intent, attempt, state) of what stands in the way."""
    moved: tuple[tuple[str, int, int], ...] = ()
    """(domain, number that was read, live number)."""
    held: bool = False
    fallen: tuple[tuple[Key, str, bool], ...] = ()
    """(effect, state before, a result is on record) of what an abort ended, dependents first."""
    count: int = 0
    ticket: Ticket | None = None
    moves: tuple[Move, ...] = ()

    @property
    def refused(self) -> bool:
        return self.code in REFUSALS


REFUSALS = frozenset(
    {
        "attempt_mismatch",
        "branch_decided",
        "closure_aborted",
        "closure_pending",
        "commit_conflict",
        "domain_race",
        "intent_failed",
        "intent_in_flight",
        "intent_mismatch",
        "invalid_request",
        "lease_lost",
        "not_reconcilable",
        "read_set_stale",
        "read_set_unsettled",
        "ticket_mismatch",
        "unknown_branch",
        "unknown_intent",
        "unknown_parent",
        "unknown_ticket",
    }
)
"""Codes of the library's errors. Everything else that a verdict says is an outcome."""


def named(effects) -> tuple[tuple[str, int, str], ...]:
    """Effects as blockers."""
    return tuple(sorted((e.intent, e.attempt, e.state) for e in effects))


def ticket_of(effect: Effect) -> Ticket:
    return Ticket(*effect[:3], effect.token, effect.domain, effect.seq, effect.fingerprint, effect.agent, effect.branch)
