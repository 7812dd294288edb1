"""A plan played in a world of its own: the same moves, decided by one fence or by another."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, as_completed, wait
from typing import TYPE_CHECKING

from effectfence_pg.cli.rollback_storm_naive import NaiveFence
from effectfence_pg.cli.rollback_storm_plans import Action, How, Kind, Plan, Read, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREADS = 8
"""Who act at the same time."""
PLANS_AT_ONCE = 6


class World:
    """The tools' side: what each domain holds, and what the tools write down about themselves. It asks no fence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: defaultdict[str, list[str]] = defaultdict(list)
        self.ran: set[str] = set()

    def read(self, domain: str) -> str | None:
        """Whose value the domain holds."""
        with self._lock:
            written = self._written[domain]
            return written[-1] if written else None

    def run(self, step: Step) -> None:
        """The tool of an effect."""
        with self._lock:
            self._written[step.domain].append(step.intent)
            self.ran.add(step.intent)

    def undo(self, step: Step) -> None:
        """What undoes it: the domain holds the newest of the other values."""
        with self._lock:
            if step.intent in self._written[step.domain]:
                self._written[step.domain].remove(step.intent)


class Side(ABC):
    """How the moves of a plan are made on one fence. Every method is safe to call from several threads."""

    def __init__(self) -> None:
        self.world = World()
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def act(self, plan: Plan, action: Action) -> None:
        """Make one move; a refusal is an answer."""
        if action.kind is Kind.ROLL_BACK:
            self.roll_back(plan, action.name)
        elif action.kind is Kind.DECIDE:
            self.decide(plan, action.name)
        elif action.kind is Kind.COMMIT:
            self.commit(plan, plan.steps[action.name])
        else:
            step = plan.steps[action.name]
            if action.kind is not Kind.FINISH:
                self.begin(step)
            if action.kind is not Kind.BEGIN:
                self.finish(plan, step)

    @abstractmethod
    def begin(self, step: Step) -> None:
        """Read the numbers, then the world; when it is as the plan has it, ask to be admitted."""

    @abstractmethod
    def finish(self, plan: Plan, step: Step) -> None:
        """Run the tool, if it was admitted, and report."""

    @abstractmethod
    def commit(self, plan: Plan, step: Step) -> None:
        """Try once more to commit an effect that has no branch."""

    @abstractmethod
    def decide(self, plan: Plan, branch: str) -> None:
        """Commit a branch, if it can be."""

    @abstractmethod
    def roll_back(self, plan: Plan, branch: str) -> None:
        """Somebody has contradicted the branch."""

    @abstractmethod
    def close(self, plan: Plan) -> None:
        """Decide what is not decided."""

    def as_planned(self, reads: Sequence[Read]) -> bool:
        """Whether the world holds what the effect would act on. Otherwise it does not act."""
        return all(self.world.read(read.domain) == read.writer for read in reads)

    def count(self, what: str, times: int = 1) -> None:
        """Remember that something happened."""
        with self._lock:
            self.counts[what] += times


def early(step: Step) -> list[Read]:
    """What the effect reads before it is admitted."""
    return [read for read in step.reads if not read.late]


def late(step: Step) -> list[Read]:
    """What it reads while it is in flight."""
    return [read for read in step.reads if read.late]


def in_read_set(reads: Sequence[Read]) -> list[str]:
    """The domains whose numbers go into a read set."""
    return [read.domain for read in reads if read.how is How.READ_SET]


class NaiveSide(Side):
    """Every effect by its own fence."""

    def __init__(self) -> None:
        super().__init__()
        self.fence = NaiveFence()
        self._admitted: set[str] = set()

    def begin(self, step: Step) -> None:
        """See `Side.begin`."""
        numbers = self.fence.observe(*in_read_set(early(step)))
        if not self.as_planned(early(step)):
            return
        if not self.fence.prepare(step.intent, step.domain, branch=step.branch, read_set=numbers):
            return
        numbers = self.fence.observe(*in_read_set(late(step)))
        if self.as_planned(late(step)) and self.fence.observe_late(step.intent, numbers):
            self._admitted.add(step.intent)

    def finish(self, plan: Plan, step: Step) -> None:  # noqa: ARG002
        """See `Side.finish`."""
        if step.intent in self._admitted:
            self.world.run(step)
            self.fence.hold(step.intent)
            if step.branch is None:
                self.fence.commit(step.intent)

    def commit(self, plan: Plan, step: Step) -> None:  # noqa: ARG002
        """See `Side.commit`."""
        self.fence.commit(step.intent)

    def decide(self, plan: Plan, branch: str) -> None:
        """Commit each effect of the branch whose own fence is valid."""
        for step in plan.steps.values():
            if step.branch == branch:
                self.fence.commit(step.intent)

    def roll_back(self, plan: Plan, branch: str) -> None:
        """Undo what the branch has done and not committed."""
        for intent in self.fence.roll_back(branch):
            if plan.steps[intent].undoable:
                self.world.undo(plan.steps[intent])

    def close(self, plan: Plan) -> None:
        """See `Side.close`."""
        for branch in plan.branches:
            (self.roll_back if branch in plan.contradicted else self.decide)(plan, branch)


def play(side: Side, plans: Sequence[Plan], done: Callable[[], object]) -> None:
    """Play every plan, several at once; what happens in one stage of a plan happens at the same time.

    Raises:
        Exception: The first one that was no answer to a move; the rest is not played then.
    """
    with ThreadPoolExecutor(PLANS_AT_ONCE) as conductors, ThreadPoolExecutor(THREADS) as actors:
        playing = [conductors.submit(_play, side, plan, actors) for plan in plans]
        try:
            for played in as_completed(playing):
                played.result()
                done()
        except BaseException:
            conductors.shutdown(wait=False, cancel_futures=True)
            raise


def _play(side: Side, plan: Plan, actors: ThreadPoolExecutor) -> None:
    for stage in plan.stages:
        moves: list[Future[None]] = [actors.submit(side.act, plan, action) for action in stage]
        wait(moves, return_when=FIRST_EXCEPTION)
        for move in moves:
            move.result()
    actors.submit(side.close, plan).result()
