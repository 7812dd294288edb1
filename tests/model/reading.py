"""The verbs of a bare domain: its number with its settledness, and the compare-and-set on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.draft import Draft
from tests.model.rules import RULES, Rules
from tests.model.state import UNSETTLED, State, Verdict

if TYPE_CHECKING:
    from tests.model.admission import Answer


def seen_number(state: State, domain: str) -> tuple[int, bool]:
    """What `observe` tells of a domain."""
    return state.live(domain), not any(e.domain == domain and e.state in UNSETTLED for e in state.effects)


def reserve(state: State, domain: str, expected: int, rules: Rules = RULES) -> Answer:
    """Take the next number of a domain if the last one is still the expected one. No effect goes with it."""
    draft = Draft(state, rules)
    live = draft.live(domain)
    if live != expected:
        return draft.answer(Verdict("domain_race", moved=((domain, expected, live),)))
    return draft.answer(Verdict("reserved", count=draft.advance(domain)))
