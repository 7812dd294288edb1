"""Refusals whose cause is in the call: a malformed value, an unknown name, a ticket or a request that does not fit."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import ClassVar

from effectfence_pg.errors.base import FenceError


class InvalidRequest(FenceError, ValueError):
    """A value was refused before any database work. `field` is the path to it, such as `args.items[3].when`."""

    field: str
    reason: str

    template: ClassVar[str] = "{field}: {reason}"
    advice: ClassVar[str] = "Correct the named field and call again; nothing was admitted."


class FenceClosed(FenceError):
    """The fence was closed before this call. Calls that had begun by then are finished."""

    namespace: str

    template: ClassVar[str] = "the fence of namespace {namespace!r} is closed"
    advice: ClassVar[str] = (
        "Make another Fence and call again: nothing was admitted or recorded, and tickets and certificates are good there."
    )


class IntentMismatch(FenceError):
    """The intent is on record as another action. `field` says where they differ, as far as it is known.

    `field` is one of domain, tool, args, identity, declaration. Digests are lower hex; declarations are the sorted
    names of the args that identify the action, or None when all of them do.
    """

    intent: str
    attempt: int
    field: str
    stored_identity: str
    given_identity: str
    stored_args: str
    given_args: str
    stored_declaration: tuple[str, ...] | None = None
    given_declaration: tuple[str, ...] | None = None

    template: ClassVar[str] = (
        "intent {intent!r} is on record (attempt {attempt}) as another action: {field} differs; "
        "stored {stored_identity}, given {given_identity}"
    )
    advice: ClassVar[str] = (
        "Do not run it: use the original request for this intent, or a new intent if another action is really meant."
    )


class UnknownParent(FenceError):
    """The parent hash is no certificate of this namespace."""

    parent: str

    template: ClassVar[str] = "parent {parent} is no certificate of this namespace"
    advice: ClassVar[str] = "Use the hash of a certificate that this namespace minted, or leave parent out."


class UnknownIntent(FenceError):
    """No attempt of this intent was ever admitted in this namespace."""

    intent: str

    template: ClassVar[str] = "intent {intent!r} is not on record in this namespace"
    advice: ClassVar[str] = "Check the intent's spelling and the namespace; nothing was admitted under this name."


class UnknownBranch(FenceError):
    """No effect was ever prepared on this branch in this namespace."""

    branch: str

    template: ClassVar[str] = "branch {branch!r} is not on record in this namespace"
    advice: ClassVar[str] = "Check the branch's name and the namespace; there is nothing to decide under this name."


class BranchDecided(FenceError):
    """The branch is committed or aborted, and takes no more effects."""

    branch: str
    state: str

    template: ClassVar[str] = "branch {branch!r} is already {state}"
    advice: ClassVar[str] = "Use a new branch name for new work; a decided branch stays as it is."


class UnknownTicket(FenceError):
    """No effect of this namespace was admitted under the ticket's token."""

    intent: str
    attempt: int

    template: ClassVar[str] = "no effect of this namespace has this ticket: intent {intent!r} attempt {attempt}"
    advice: ClassVar[str] = "Return the ticket exactly as prepare gave it, to the namespace that gave it."


class TicketMismatch(FenceError):
    """The ticket differs from the admission on record in `fields`."""

    intent: str
    attempt: int
    fields: tuple[str, ...]

    advice: ClassVar[str] = "Return the ticket exactly as prepare gave it; an edited ticket moves nothing."

    @property
    def field(self) -> str:
        """The first field that differs."""
        return self.fields[0] if self.fields else "token"

    def _message(self) -> str:
        names = ", ".join(self.fields) or "token"
        return f"the ticket for intent {self.intent!r} attempt {self.attempt} differs from the admission in {names}"


class AttemptMismatch(FenceError):
    """A verdict names another attempt than the current one. Attempts count from 1."""

    intent: str
    given: int
    current: int

    template: ClassVar[str] = "intent {intent!r} is at attempt {current}, the verdict is about attempt {given}"
    advice: ClassVar[str] = "Read the intent's status again and judge the attempt that is current now."


class NotReconcilable(FenceError):
    """The attempt is in a state that this outcome cannot resolve."""

    intent: str
    attempt: int
    state: str
    outcome: str

    template: ClassVar[str] = "intent {intent!r} attempt {attempt} is {state}; {outcome} is no answer to that"
    advice: ClassVar[str] = "Read the intent's status: only an attempt whose outcome is open can be reconciled."


class ResultNotRecordable(FenceError):
    """The tool ran, and its result is no value that a certificate can hold. With `rolled_back` all that it did is undone."""

    intent: str
    reason: str
    rolled_back: bool = False

    template: ClassVar[str] = "the result of intent {intent!r} cannot be recorded: {reason}"
    advice: ClassVar[str] = (
        "The effect did run, so do not run it again: commit a plain JSON result, or ask an operator to reconcile it."
    )

    def _advice(self) -> str | None:
        if not self.rolled_back:
            return None
        return "Nothing has happened, for all of it was rolled back: return a plain JSON result and call again."


class ToolUnfinished(FenceError, TypeError):
    """The tool returned, and what it returned is still to be done: a coroutine, a generator or a future is no result.

    `returned` is its type. With `rolled_back` everything that the tool did is undone.
    """

    intent: str
    returned: str
    rolled_back: bool = False

    template: ClassVar[str] = (
        "the tool of intent {intent!r} returned an object of type {returned}, which has to be awaited or read first"
    )
    advice: ClassVar[str] = (
        "Do not run it again: ask an operator to reconcile it, for the tool may have done something before it returned; "
        "and give the fence a function that returns its result, or a coroutine function to arun or an AsyncFence."
    )

    def _advice(self) -> str | None:
        if not self.rolled_back:
            return None
        return (
            "Nothing has happened, for all of it was rolled back: call again with a function that returns its result."
        )


class ResultNotReplayable(FenceError):
    """The effect is done, and what its tool returned could not be recorded. `reason` says why."""

    intent: str
    attempt: int
    reason: str

    template: ClassVar[str] = "intent {intent!r} attempt {attempt} is done, and its result is not replayable: {reason}"
    advice: ClassVar[str] = (
        "The effect did run, so do not run it again: go on without its result, or read it from the downstream system."
    )
