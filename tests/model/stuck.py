"""I14: from every situation somebody can resolve every intent through the verbs, and decide a held effect either way.

A search over what operators may do when every ticket is lost: no holder ever comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.completion import expire, sweep
from tests.model.decisions import abort_branch, abort_intent, promote
from tests.model.outcomes import reconcile
from tests.model.state import (
    ABORTED,
    COMMITTED,
    EXECUTED,
    FENCED,
    IN_FLIGHT,
    LIVE,
    OPEN,
    RELEASED,
    SUPERSEDED,
    Effect,
    Key,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.rules import Rules

RESOLVED = (COMMITTED, RELEASED, SUPERSEDED)
Goal = tuple[str, ...]


class Resolver:
    """Finds a way out of a state, and remembers the ways that it found."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._found: set[tuple[State, Key, Goal]] = set()

    def stuck(self, state: State) -> Iterator[str]:
        for effect in state.effects:
            if effect.state not in RESOLVED and not self.reaches(state, effect[:3], RESOLVED):
                yield f"nobody can resolve {effect[:3]}, which is {effect.state}"
            if effect.state != EXECUTED:
                continue
            if not self.reaches(state, effect[:3], (ABORTED,)):
                yield f"nobody can roll back {effect[:3]}, which is held"
            if not _entangled(state, effect) and not self.reaches(state, effect[:3], (COMMITTED,)):
                yield f"nobody can commit {effect[:3]}, which is held"

    def reaches(self, state: State, key: Key, goal: Goal) -> bool:
        """Breadth-first, so that a short way out is found before a long detour is tried."""
        came: dict[State, State | None] = {state: None}
        layer = [state]
        while layer:
            following = []
            for here in layer:
                if (here, key, goal) in self._found or here.effect(key).state in goal:
                    self._remember(came, here, key, goal)
                    return True
                for after in self._ways(here, here.effect(key), goal):
                    if after not in came:
                        came[after] = here
                        following.append(after)
            layer = following
        return False

    def _remember(self, came: dict[State, State | None], state: State | None, key: Key, goal: Goal) -> None:
        while state is not None:
            self._found.add((state, key, goal))
            state = came[state]

    def _ways(self, state: State, mine: Effect, goal: Goal) -> Iterator[State]:
        """What operators may try, the promising first."""
        rules = self._rules
        if mine.state == EXECUTED:
            if goal == (COMMITTED,):
                yield from self._promotions(state, mine)
            else:
                yield abort_intent(state, mine.intent, mine.attempt, rules=rules)[0]
                if mine.branch is not None:
                    yield abort_branch(state, mine.branch, rules=rules)[0]
        elif goal != (COMMITTED,):
            yield from self._closing(state, mine)
        for other in sorted(state.effects, key=lambda other: other.target != mine[:3]):
            if other is not mine:
                yield from self._closing(state, other)

    def _promotions(self, state: State, mine: Effect) -> Iterator[State]:
        if mine.branch is None:
            yield promote(state, intent=mine.intent, rules=self._rules)[0]
        else:
            yield promote(state, branch=mine.branch, rules=self._rules)[0]
        for branch, decided in state.branches:
            if decided == OPEN and branch != mine.branch and branch in _rests_on(state, mine):
                yield promote(state, branch=branch, rules=self._rules)[0]

    def _closing(self, state: State, effect: Effect) -> Iterator[State]:
        """End an attempt that nobody hears of: its lease runs out, and somebody looks downstream."""
        rules = self._rules
        if effect.lease == LIVE:
            yield expire(state, effect[:3])[0]
        elif effect.state == IN_FLIGHT:
            yield sweep(state, rules)[0]
        elif effect.state in FENCED:
            for outcome in ("compensated", "happened") if effect.undoes == 0 else ("did_not_happen", "happened"):
                yield reconcile(
                    state,
                    effect.intent,
                    effect.attempt,
                    outcome,
                    rules,
                    undoes=effect.undoes,
                    result="found" if outcome == "happened" and effect.result is None else None,
                )[0]


def _rests_on(state: State, effect: Effect) -> set[str | None]:
    """The branches that an effect, and its branch with it, rests on."""
    effects = {e[:3]: e for e in state.effects}
    found: set[str | None] = set()
    met: set[Key] = set()
    todo = [effect[:3]]
    while todo:
        key = todo.pop()
        if key in met or effects[key].state == COMMITTED:
            continue
        met.add(key)
        branch = effects[key].branch
        todo += effects[key].observed
        if branch is not None and branch not in found:
            found.add(branch)
            todo += [e[:3] for e in state.effects if e.branch == branch and e.state == EXECUTED]
    return found


def _entangled(state: State, effect: Effect) -> bool:
    """Whether branches that observed each other stand in the way: neither can be promoted, both can be rolled back."""
    branches = {branch for branch in _rests_on(state, effect) if branch is not None}
    for branch in branches:
        for other in branches - {branch}:
            if _reaches(state, branch, other) and _reaches(state, other, branch):
                return True
    return False


def _reaches(state: State, branch: str, other: str) -> bool:
    members = [e for e in state.effects if e.branch == branch and e.state == EXECUTED]
    below = {e[:3]: e for e in state.effects}
    todo = [key for member in members for key in member.observed]
    met: set[Key] = set()
    while todo:
        key = todo.pop()
        if key in met or below[key].state == COMMITTED:
            continue
        met.add(key)
        if below[key].branch == other:
            return True
        todo += below[key].observed
    return False
