"""Short ways to write configurations and the steps that lead to where they start."""

from __future__ import annotations

from tests.model.acting import Step
from tests.model.state import Key, Request
from tests.model.world import Plan, reader


def plan(
    intent: str, domain: str = "D", *, reads=(), expects=False, late_reads=(), late_observes=(), child_of=None, **more
):
    """What one agent wants."""
    request = Request(intent, domain, agent=more.pop("agent", intent.upper()), **more)
    return Plan(request, tuple(reads), expects, tuple(late_reads), tuple(late_observes), child_of)


def may(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


def key(intent: str, attempt: int = 1) -> Key:
    return intent, 0, attempt


def prepared(number: int) -> Step:
    return Step("prepare", (number,))


def ran(intent: str, attempt: int = 1) -> Step:
    return Step("run", (key(intent, attempt),))


def committed(intent: str, closure: str = "require", attempt: int = 1) -> Step:
    return Step("commit", (key(intent, attempt), closure))


def held(number: int, intent: str, attempt: int = 1) -> tuple[Step, ...]:
    """An effect that ran and waits: of a branch, or of something undecided."""
    return prepared(number), ran(intent, attempt), committed(intent, "hold", attempt)


def looked(number: int, domain: str = "D") -> Step:
    return Step("look", (reader(number), domain))
