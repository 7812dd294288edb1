"""The plans on the fence of this library: whole branches and closures, decided in PostgreSQL."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from effectfence_pg.cli.rollback_storm_plans import How, Plan, Read, Step
from effectfence_pg.cli.rollback_storm_sides import Side, early, in_read_set, late
from effectfence_pg.errors import (
    BranchDecided,
    ClosureAborted,
    ClosurePending,
    DomainRace,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    NotReconcilable,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownBranch,
    UnknownIntent,
)
from effectfence_pg.values import Aborted, Compensation, EffectRequest, FallenEffect, Pending, Replay

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from effectfence_pg.fence import Fence
    from effectfence_pg.values import PreparedEffect

LEASE_SECONDS = 3600.0
"""Nobody dies in this storm: a lease that runs out would only say that the machine is slow."""
RECONCILER = "reconciler"

ANSWERS = (
    BranchDecided,
    ClosureAborted,
    ClosurePending,
    DomainRace,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    NotReconcilable,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownBranch,
    UnknownIntent,
)
"""Refusals that a speculating agent has to expect; anything else ends the storm."""


class FencedSide(Side):
    """The closure-aware side."""

    def __init__(self, fence: Fence) -> None:
        super().__init__()
        self._fence = fence
        self.tickets: dict[str, PreparedEffect] = {}

    @contextlib.contextmanager
    def _answered(self) -> Generator[None]:
        """A refusal ends the move, and nothing else."""
        try:
            yield
        except ANSWERS as error:
            self.count(error.code)

    def begin(self, step: Step) -> None:
        """See `Side.begin`."""
        with self._answered():
            entries = self._fence.observe(*in_read_set(early(step)))
            if not self.as_planned(early(step)):
                return
            request = EffectRequest(
                intent=step.intent,
                branch=step.branch,
                domain=step.domain,
                tool="write",
                agent=step.branch or step.intent,
                args={"value": step.intent},
                read_set=entries,
                observes=_observed(early(step)),
                compensation=_compensation(step),
                lease_seconds=LEASE_SECONDS,
            )
            verdict = self._fence.prepare(request)
            if isinstance(verdict, Replay):
                return
            prepared = self._observe_late(step, verdict.prepared) if late(step) else verdict.prepared
            if prepared is not None:
                self.tickets[step.intent] = prepared

    def _observe_late(self, step: Step, prepared: PreparedEffect) -> PreparedEffect | None:
        """The ticket with what it read late; None when the effect gives up before its tool ran."""
        entries = self._fence.observe(*in_read_set(late(step)))
        try:
            if self.as_planned(late(step)):
                return self._fence.observe_late(prepared, entries, _observed(late(step)))
            reason = "the world is not what the plan rests on"
        except ANSWERS as error:
            self.count(error.code)
            reason = "it has read what does not stand"
        self._fence.abort(prepared, reason, effect="none")
        return None

    def finish(self, plan: Plan, step: Step) -> None:
        """See `Side.finish`."""
        if step.intent in self.tickets:
            self.world.run(step)
            self._commit(plan, step, step.closure)

    def commit(self, plan: Plan, step: Step) -> None:
        """See `Side.commit`."""
        self._commit(plan, step, "promote")

    def _commit(self, plan: Plan, step: Step, closure: str) -> None:
        prepared = self.tickets.get(step.intent)
        if prepared is None:
            return
        try:
            self._fence.commit(prepared, {"value": step.intent}, closure=closure)
        except (ClosureAborted, ReadSetStale) as error:
            self.count(error.code)
            # It did run, and falls by its own report: nobody else was told to undo it.
            own = FallenEffect(
                intent=step.intent, attempt=1, state="in_flight", compensation=_compensation(step), due=True
            )
            self._undo(plan, [own])
        except ANSWERS as error:
            self.count(error.code)

    def decide(self, plan: Plan, branch: str) -> None:
        """See `Side.decide`."""
        self._decided(plan, branch)

    def _decided(self, plan: Plan, branch: str) -> bool:
        with self._answered():
            outcome = self._fence.reconcile_branch(branch, actor=RECONCILER)
            if isinstance(outcome, Aborted):
                self._undo(plan, outcome.effects)
            return not isinstance(outcome, Pending)
        # No effect of it was ever admitted.
        return True

    def roll_back(self, plan: Plan, branch: str) -> None:
        """See `Side.roll_back`."""
        with self._answered():
            self._undo(plan, self._fence.abort_branch(branch, "contradicted", actor=RECONCILER).effects)

    def _undo(self, plan: Plan, effects: Sequence[FallenEffect]) -> None:
        """Decide about the branches of what fell, for all of a branch falls with its first effect; then undo it all.

        A contradicted branch is rolled back: what fell may be released meanwhile as never run, and the rest could commit.
        """
        fallen, decided = [list(effects)], set[str]()
        for batch in fallen:
            for branch in sorted({plan.steps[effect.intent].branch or "" for effect in batch} - decided - {""}):
                decided.add(branch)
                with self._answered():
                    outcome = (
                        self._fence.abort_branch(branch, "contradicted", actor=RECONCILER)
                        if branch in plan.contradicted
                        else self._fence.reconcile_branch(branch, actor=RECONCILER)
                    )
                    if isinstance(outcome, Aborted):
                        fallen.append(list(outcome.effects))
        for effect in itertools.chain.from_iterable(reversed(fallen)):
            self._compensate(plan.steps[effect.intent], effect)

    def _compensate(self, step: Step, effect: FallenEffect) -> None:
        def erase(_: PreparedEffect) -> dict[str, Any]:
            self.world.undo(step)
            self.count("compensated")
            return {"erased": step.intent}

        with self._answered():
            self._fence.compensate([effect], erase, agent=RECONCILER)

    def close(self, plan: Plan) -> None:
        """See `Side.close`."""
        for branch in sorted(plan.contradicted):
            self.roll_back(plan, branch)
        left = [branch for branch in plan.branches if branch not in plan.contradicted]
        while left:
            pending = [branch for branch in left if not self._decided(plan, branch)]
            if len(pending) == len(left):
                # Each waits for another one's decision: somebody has to give way.
                self.count("gave_way")
                self.roll_back(plan, pending[0])
            left = pending
        for step in plan.steps.values():
            if step.branch is None:
                self.commit(plan, step)


def _compensation(step: Step) -> Compensation | None:
    return Compensation(tool="erase", args={"value": step.intent}) if step.undoable else None


def _observed(reads: Iterable[Read]) -> tuple[str, ...]:
    return tuple(read.writer for read in reads if read.how is How.OBSERVES and read.writer is not None)
