"""Random speculative plans: who writes what, who rests on it, and who contradicts whom at which moment.

A plan is a value, made from a seed; nobody's fence has a say in it. Its stages come one after the other, and what stands in
one stage happens at the same time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum, auto

CONFIG = "config"
SHARED_DOMAINS = 4
MOST_EFFECTS = 3
"""Of one branch."""
DECISION_STAGES = 3
"""Stages after the last effect began, for decisions."""


class How(StrEnum):
    """How a fence is told what was read."""

    READ_SET = auto()
    OBSERVES = auto()


class Kind(StrEnum):
    """What happens in a stage: to an effect, or to a branch."""

    BEGIN = auto()
    FINISH = auto()
    RUN = auto()
    """Begin and finish, one right after the other."""
    COMMIT = auto()
    ROLL_BACK = auto()
    DECIDE = auto()


@dataclass(frozen=True, slots=True)
class Read:
    """The effect acts because the domain holds what `writer` wrote; None: nobody's."""

    domain: str
    writer: str | None
    how: How
    late: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One effect of a plan. `branch` is None for one that does not wait for any plan, only for what it read."""

    intent: str
    branch: str | None
    domain: str
    reads: tuple[Read, ...]
    closure: str
    undoable: bool


@dataclass(frozen=True, slots=True)
class Action:
    """`name` is an intent or a branch."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be tried.

    Attributes:
        branches: Every branch.
        steps: Every effect, by its intent.
        contradicted: Branches that are rolled back for certain; nobody tries to commit them.
        stages: What happens, and when.
    """

    branches: tuple[str, ...]
    steps: dict[str, Step]
    contradicted: frozenset[str]
    stages: tuple[tuple[Action, ...], ...]

    def rests_on(self, intent: str) -> frozenset[str]:
        """Every effect that this one read, or that one of those had read."""
        found: set[str] = set()
        waiting = [intent]
        while waiting:
            for read in self.steps[waiting.pop()].reads:
                if read.writer is not None and read.writer not in found:
                    found.add(read.writer)
                    waiting.append(read.writer)
        return frozenset(found)


@dataclass(slots=True)
class _Slot:
    """An effect before it is known what it reads; `begins` and `ends` are stages."""

    branch: str | None
    begins: int
    ends: int
    domain: str = ""
    intent: str = ""
    reads: list[Read] = field(default_factory=list[Read])


def make_plan(seed: int, number: int, fewest: int, most: int) -> Plan:
    """Plan `number` of a seed, with so many branches. It is the same one however many plans there are.

    Whatever else it has, a branch C acts on what a branch B wrote, and B is rolled back afterwards.
    """
    # A plan has to come out the same for everybody who has its seed; nothing is secret about it.
    draw = random.Random(f"{seed}/{number}")  # noqa: S311
    branches = tuple(f"{number:05d}/b{at}" for at in range(draw.randint(fewest, most)))
    wrong, misled, *others = draw.sample(branches, len(branches))
    slots = _slots(draw, wrong, misled, others)
    stages = max(slot.ends for slot in slots) + 1 + DECISION_STAGES
    contradicted = frozenset({wrong, *draw.sample(others, draw.randint(0, len(others) // 4))})
    # Whether this one is committed or rolled back is a race.
    contested = [branch for branch in others if branch not in contradicted and draw.random() < 1 / 6]
    rolled_back = {
        branch: draw.randint(min(slot.begins for slot in slots if slot.branch == branch), stages - 1)
        for branch in (*sorted(contradicted), *contested)
    }
    rolled_back[wrong] = draw.randint(slots[1].begins + 1, stages - 1)
    _fill(draw, number, slots, rolled_back)
    actions: dict[int, list[Action]] = defaultdict(list)
    for slot in slots:
        if slot.begins == slot.ends:
            actions[slot.begins].append(Action(Kind.RUN, slot.intent))
        else:
            actions[slot.begins].append(Action(Kind.BEGIN, slot.intent))
            actions[slot.ends].append(Action(Kind.FINISH, slot.intent))
        if slot.branch is None and draw.random() < 3 / 4:
            actions[draw.randint(slot.ends + 1, stages - 1)].append(Action(Kind.COMMIT, slot.intent))
    for branch, stage in rolled_back.items():
        actions[stage].append(Action(Kind.ROLL_BACK, branch))
    for branch in branches:
        if branch not in contradicted:
            done = max(slot.ends for slot in slots if slot.branch == branch)
            first = 1 if draw.random() < 1 / 8 else done
            for _ in range(draw.randint(1, 2)):
                actions[draw.randint(first, stages - 1)].append(Action(Kind.DECIDE, branch))
    return Plan(
        branches=branches,
        steps={slot.intent: _step(draw, slot) for slot in slots},
        contradicted=contradicted,
        stages=tuple(tuple(draw.sample(actions[stage], len(actions[stage]))) for stage in range(stages)),
    )


def _slots(draw: random.Random, wrong: str, misled: str, others: list[str]) -> list[_Slot]:
    """When each effect begins and ends. The first is B's write to the config, the second acts on it."""
    rest: list[str | None] = [branch for branch in (wrong, misled) for _ in range(draw.randint(0, MOST_EFFECTS - 1))]
    rest += [branch for branch in others for _ in range(draw.randint(1, MOST_EFFECTS))]
    rest += [None] * draw.randint(0, 2)
    draw.shuffle(rest)
    slots = [_Slot(wrong, 0, 0)]
    stage = 1
    misled_at = draw.randint(0, len(rest))
    for at, branch in enumerate([*rest[:misled_at], misled, *rest[misled_at:]]):
        slow = draw.random() < 1 / 4
        slot = _Slot(branch, stage, stage + (draw.randint(1, 2) if slow else 0))
        if at == misled_at:
            slots.insert(1, slot)
        else:
            slots.append(slot)
        stage += draw.random() < 1 / 2
    return slots


def _fill(draw: random.Random, number: int, slots: list[_Slot], rolled_back: dict[str, int]) -> None:
    """Names, domains, and what each reads: mostly what stands in the world when it begins."""
    shared = [f"{number:05d}/d{domain}" for domain in range(SHARED_DOMAINS)]
    for at, slot in enumerate(slots):
        slot.intent = f"{number:05d}/{at}"
        own = f"{number:05d}/{CONFIG if at == 0 else slot.intent}"
        slot.domain = draw.choice(shared) if at > 1 and draw.random() < 1 / 2 else own
    for at, slot in enumerate(slots[1:], 1):
        standing: dict[str, str | None] = dict.fromkeys(shared)
        for other in sorted(slots, key=lambda other: other.ends):
            gone = other.branch is not None and rolled_back.get(other.branch, slot.begins) < slot.begins
            if other.ends < slot.begins and not gone:
                standing[other.domain] = other.intent
        wanted = draw.sample(sorted(standing), draw.choice((0, 1, 1, 2)))
        for domain in [slots[0].domain] if at == 1 else wanted:
            how = draw.choice(tuple(How)) if standing[domain] else How.READ_SET
            slot.reads.append(Read(domain, standing[domain], how, late=draw.random() < 1 / 4))


def _step(draw: random.Random, slot: _Slot) -> Step:
    closure = draw.choice(("hold", "require") if slot.branch else ("hold", "require", "promote"))
    undoable = draw.random() < 3 / 4
    return Step(slot.intent, slot.branch, slot.domain, tuple(slot.reads), closure, undoable)
