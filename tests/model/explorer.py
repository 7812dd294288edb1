"""Breadth-first exploration of a configuration: every situation once, every step from it, every invariant after it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from tests.model.acting import Step, act
from tests.model.choices import Configuration, steps
from tests.model.happening import Scene
from tests.model.invariants import SNAPSHOTS
from tests.model.rules import RULES, Rules
from tests.model.state import State
from tests.model.stepwise import STEPWISE, Taken
from tests.model.stuck import Resolver
from tests.model.world import Situation, World

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I13", "I14")
"""What is checked after every step. I11 and I12 have tests of their own."""


class Violation(NamedTuple):
    invariant: str
    found: str
    path: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.invariant}: {self.found}\n  " + "\n  ".join(map(str, self.path))


class Exploration(NamedTuple):
    situations: int
    taken: int
    violation: Violation | None
    codes: frozenset[str]
    """Every verdict that was seen."""
    moves: frozenset[tuple[str | None, str, str]]
    """Every (state before, state after, cause) that was seen."""


class Checks:
    """The invariants that are looked at, with what they remember."""

    def __init__(self, scene: Scene, watched: tuple[str, ...]) -> None:
        self._scene = scene
        self._snapshots = [(name, SNAPSHOTS[name]) for name in watched if name in SNAPSHOTS]
        self._stepwise = [(name, STEPWISE[name]) for name in watched if name in STEPWISE]
        self._resolver = Resolver(scene.rules) if "I14" in watched else None
        self._unstuck = set()

    def step(self, taken: Taken) -> Iterator[tuple[str, str]]:
        for name, invariant in self._stepwise:
            for found in invariant(taken, self._scene):
                yield name, found

    def snapshot(self, situation: Situation) -> Iterator[tuple[str, str]]:
        for name, invariant in self._snapshots:
            for found in invariant(situation, self._scene):
                yield name, found
        if self._resolver is not None and situation.fence not in self._unstuck:
            for found in self._resolver.stuck(situation.fence):
                yield "I14", found
            self._unstuck.add(situation.fence)


def beginning(case: Configuration, scene: Scene) -> Situation:
    first = {plan.request.intent: plan.request for plan in reversed(case.plans)}
    idempotent = frozenset(intent for intent, request in first.items() if request.policy == "takeover")
    situation = Situation(State(), World(idempotent=idempotent))
    for step in case.start:
        situation, _ = act(situation, step, scene)
    return situation


def explore(
    case: Configuration, rules: Rules = RULES, *, depth: int | None = None, watched: tuple[str, ...] = EVERY
) -> Exploration:
    """Visit everything within a depth; stop at the first violation of a watched invariant."""
    scene = case.scene(rules)
    checks = Checks(scene, watched)
    first = beginning(case, scene)
    came: dict[Situation, tuple[Situation, Step] | None] = {first: None}
    codes: set[str] = set()
    moves: set[tuple[str | None, str, str]] = set()
    taken_count = 0
    layer = [first]
    for _ in range(case.depth if depth is None else depth):
        following = []
        for before in layer:
            for step in steps(before, case, scene):
                after, verdict = act(before, step, scene)
                taken_count += 1
                codes.add(verdict.code)
                moves.update(move[1:4] for move in verdict.moves)
                taken = Taken(before, step, after, verdict)
                known = after in came
                if known and after.fence is before.fence and not verdict.refused:
                    continue
                wrong = next(checks.step(taken), None)
                if wrong is None and not known and _within(after, case):
                    came[after] = (before, step)
                    following.append(after)
                    wrong = next(checks.snapshot(after), None)
                if wrong is not None:
                    path = (*case.start, *_path(came, before), step)
                    return Exploration(
                        len(came), taken_count, Violation(*wrong, path), frozenset(codes), frozenset(moves)
                    )
        layer = following
    return Exploration(len(came), taken_count, None, frozenset(codes), frozenset(moves))


def _within(situation: Situation, case: Configuration) -> bool:
    return all(effect.attempt <= case.attempts for effect in situation.fence.effects)


def _path(came: dict[Situation, tuple[Situation, Step] | None], situation: Situation) -> tuple[Step, ...]:
    path = []
    while (link := came[situation]) is not None:
        situation, step = link
        path.append(step)
    return tuple(reversed(path))


def walk(case: Configuration, rng: random.Random, length: int, rules: Rules = RULES) -> Violation | None:
    """One long random walk, with the same checks after every step."""
    scene = case.scene(rules)
    checks = Checks(scene, EVERY)
    situation = beginning(case, scene)
    path = list(case.start)
    for _ in range(length):
        step = rng.choice(list(steps(situation, case, scene)))
        after, verdict = act(situation, step, scene)
        if not _within(after, case):
            continue
        path.append(step)
        wrong = next(checks.step(Taken(situation, step, after, verdict)), None) or next(checks.snapshot(after), None)
        if wrong is not None:
            return Violation(*wrong, tuple(path))
        situation = after
    return None
