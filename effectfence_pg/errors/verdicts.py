"""Refusals whose cause is what others did: a holder, a write in between, a rollback, a lost lease."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from effectfence_pg.errors.base import Blocker, FenceError, MovedEntry, UnsettledEntry, listed

if TYPE_CHECKING:
    from datetime import datetime


class IntentInFlight(FenceError):
    """Another attempt holds the intent. `since` is the database's clock.

    With `held` the tool has run and the effect waits for a decision about `blockers` or its branch; there is no
    `retry_after_seconds` then, because no lease bounds the wait.
    """

    intent: str
    attempt: int
    holder: str
    since: datetime | None = None
    retry_after_seconds: float | None = None
    held: bool = False
    blockers: tuple[Blocker, ...] = ()

    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = "Wait and call again with the same request; do not run the effect yourself."

    def _message(self) -> str:
        head = f"intent {self.intent!r} attempt {self.attempt} is held by {self.holder!r}"
        if self.held:
            return f"{head}: it has run and waits for a decision ({listed(self.blockers) or 'its branch is open'})"
        after = self.retry_after_seconds
        return head if after is None else f"{head}; its lease runs out in {after:.1f} s"

    def _advice(self) -> str | None:
        if not self.held:
            return None
        return (
            "Wait until the branch or the named blockers are decided, then call again; do not run the effect yourself."
        )


class IntentFailed(FenceError):
    """The last attempt is fenced. `reason` says why, `way_out` which verb resolves it.

    With `verifiable` its lease ran out unheard of, and its request asked for a look at the downstream system: a caller that
    brings a `verify` hook may resolve it.
    """

    intent: str
    attempt: int
    state: str
    reason: str
    way_out: str
    verifiable: bool = False

    template: ClassVar[str] = "intent {intent!r} attempt {attempt} is {state}: {reason}; way out: {way_out}"
    advice: ClassVar[str] = (
        "Do not retry and do not run the effect: ask an operator to find out whether it happened and to reconcile it."
    )


class ReadSetStale(FenceError):
    """The world moved since the decision was made; `entries` are all entries that moved, at once.

    With `effect_ran` the tool had already run: its result is on record, and the effect is fenced until reconciled.
    """

    entries: tuple[MovedEntry, ...]
    effect_ran: bool = False
    intent: str | None = None
    attempt: int | None = None

    advice: ClassVar[str] = "Read the named domains again, decide again, and call with the new numbers."

    def _message(self) -> str:
        tail = "; the effect did run and its result is on record" if self.effect_ran else ""
        return f"the read set is stale: {listed(self.entries)}{tail}"

    def _advice(self) -> str | None:
        if not self.effect_ran:
            return None
        return "The effect did run, so do not run it again: ask an operator to reconcile it; its outcome is on record."


class ReadSetUnsettled(ReadSetStale):
    """The decision rests on a value that is not committed, or was not when it was read."""

    # The kind of entry is what tells the two errors apart, and nobody assigns to it.
    entries: tuple[UnsettledEntry, ...]  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]

    advice: ClassVar[str] = (
        "Wait until the named effects are committed or resolved by an operator, then read the domains and call again."
    )

    def _message(self) -> str:
        return f"the read set is not settled: {listed(self.entries)}"


class DomainRace(ReadSetStale):
    """Another effect took the number that was expected. `actual` is the domain's number now."""

    domain: str
    expected: int
    actual: int
    entries: tuple[MovedEntry, ...] = ()

    advice: ClassVar[str] = "Another effect won this domain: read it again, decide again, and call with the new number."

    def __post_init__(self) -> None:
        self.entries = self.entries or (MovedEntry(self.domain, self.expected, self.actual),)
        super().__post_init__()

    def _message(self) -> str:
        return f"domain {self.domain!r} was expected at {self.expected} and is at {self.actual}"


class LeaseLost(FenceError):
    """This attempt is no longer the holder. `evidence_kept` tells that its result is stored as late evidence."""

    intent: str
    attempt: int
    state: str
    reason: str
    evidence_kept: bool = False

    advice: ClassVar[str] = (
        "Stop working on this attempt; ask an operator to reconcile it if the effect may have happened."
    )

    def _message(self) -> str:
        tail = "; the result is kept as late evidence" if self.evidence_kept else ""
        return f"intent {self.intent!r} attempt {self.attempt} is {self.state}, its lease is lost: {self.reason}{tail}"


class CommitConflict(FenceError):
    """The effect is committed, and what was asked now contradicts it. The first `certificate` stands."""

    intent: str
    attempt: int
    # An EffectCert: certificates are built in a layer above this one.
    certificate: Any = None
    reason: str = "it is committed with another result"

    template: ClassVar[str] = "intent {intent!r} attempt {attempt} is already committed: {reason}"
    advice: ClassVar[str] = "Use the certificate that is on record; undo it with a compensation if it should not stand."


def _subject(error: ClosurePending | ClosureAborted) -> str:
    return f"intent {error.intent!r} attempt {error.attempt}" if error.branch is None else f"branch {error.branch!r}"


class ClosurePending(FenceError):
    """The effect has run and is on record; what it observed is not decided yet. With `branch` it is a whole branch.

    With `rolled_back` all that its function did is undone, as in `run_in_transaction`.
    """

    intent: str
    attempt: int
    blockers: tuple[Blocker, ...] = ()
    branch: str | None = None
    rolled_back: bool = False

    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = (
        "The effect did run, so do not run it again: wait until the named blockers are decided, then commit again."
    )

    def _message(self) -> str:
        why = listed(self.blockers) or "its branch is open"
        return f"{_subject(self)} cannot commit yet: {why}"

    def _advice(self) -> str | None:
        if self.rolled_back:
            return "Nothing has happened, for all of it was rolled back: wait until the blockers are decided, then call again."
        if self.branch is None:
            return None
        return "Wait until the named blockers have run or are decided, then promote again; what ran is not run again."


class ClosureAborted(FenceError):
    """The effect observed something that was rolled back, and is rolled back with it. With `branch` it is a whole branch.

    `effects`: what fell by the commit or the promotion, dependents first; those with `due` have run and are to be undone.
    """

    intent: str
    attempt: int
    blockers: tuple[Blocker, ...] = ()
    reason: str = "something it observed was rolled back"
    branch: str | None = None
    # FallenEffects: like certificates they are built in a layer above this one.
    effects: tuple[Any, ...] = ()

    advice: ClassVar[str] = (
        "Do not retry: ask an operator to compensate the effect if it ran, then read again and decide again."
    )

    def _message(self) -> str:
        tail = f" ({listed(self.blockers)})" if self.blockers else ""
        return f"{_subject(self)} is aborted: {self.reason}{tail}"


class ClosureTooLarge(FenceError):
    """The effect's closure has more than `limit` members."""

    intent: str
    limit: int

    template: ClassVar[str] = "the closure of intent {intent!r} has more than {limit} members"
    advice: ClassVar[str] = "Settle or promote older effects first, then call again; or raise max_closure_members."
