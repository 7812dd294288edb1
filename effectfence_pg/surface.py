"""The verbs that are one operation each, the same on a fence and in the caller's transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from effectfence_pg import plans
from effectfence_pg.protocol.speculation import require_committed
from effectfence_pg.sql import verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from effectfence_pg.calls import Calls
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import (
        Aborted,
        Committed,
        EffectCert,
        EffectStatus,
        FallenEffect,
        FenceConfig,
        Fresh,
        Held,
        Pending,
        PreparedEffect,
        ReadSetEntry,
        Replay,
        RolledBack,
        Settled,
    )

T = TypeVar("T")

OPERATOR = "operator"
"""Who decides when the caller does not say."""


class Surface(ABC):
    """Everything that is one operation, whoever's transaction runs it."""

    _calls: Calls

    @abstractmethod
    def _run(self, operation: Operation[T]) -> T:
        """Run an operation and what it chains."""

    def _follow(self, plan: plans.Plan[T]) -> T:
        return plans.follow(plan, self._run)

    @property
    def namespace(self) -> str:
        """The tenant."""
        return self._calls.namespace

    @property
    def config(self) -> FenceConfig:
        """Limits and defaults."""
        return self._calls.config

    def abort(
        self, prepared: PreparedEffect | Mapping[str, Any], reason: str, *, effect: str = "unknown"
    ) -> RolledBack:
        """Give up an attempt, or roll back what is recorded.

        Args:
            prepared: The ticket.
            reason: Why, for people.
            effect: `unknown` fences the intent; `none` says that nothing happened and makes it runnable again.

        Raises:
            LeaseLost: Another attempt replaced this one.
            CommitConflict: It is committed.
        """
        return self._run(self._calls.abort(prepared, reason, effect))

    def renew(self, prepared: PreparedEffect | Mapping[str, Any]) -> PreparedEffect:
        """Extend the lease by its length from now, by the database's clock.

        Raises:
            LeaseLost, ClosureAborted: Stop working: the effect is no longer this holder's.
        """
        return self._run(verbs.renew(self._calls.ticket(prepared)))

    def observe(self, *domains: str) -> tuple[ReadSetEntry, ...]:
        """The number of each domain and whether it is settled, for a read set. Read the number first, then the world."""
        return self._run(self._calls.observe(domains))

    def observe_late(
        self,
        prepared: PreparedEffect | Mapping[str, Any],
        entries: tuple[ReadSetEntry | Mapping[str, Any], ...] = (),
        intents: tuple[str, ...] = (),
    ) -> PreparedEffect:
        """Add what an effect in flight observed since; use the ticket that comes back.

        Args:
            prepared: The ticket.
            entries: Read-set entries of domains that were read.
            intents: Intents whose effects were observed.

        Raises:
            ReadSetStale, ReadSetUnsettled, UnknownIntent: The effect is unchanged; its holder has read dirty data and
                should abort.
            LeaseLost, ClosureAborted: It is not in flight any more.
        """
        return self._run(self._calls.observe_late(prepared, entries, intents))

    def current(self, domain: str) -> int:
        """The last number given in a domain, 0 when it was never touched. A pure read: it creates nothing."""
        return self.observe(domain)[0].seq

    def reserve(self, domain: str, expected_seq: int) -> int:
        """The bare compare-and-set: take the next number of a domain if the last one is still the expected one.

        Raises:
            DomainRace: It is not.
        """
        return self._run(self._calls.reserve(domain, expected_seq))

    def status(self, intent: str) -> EffectStatus:
        """Where the current attempt of an intent stands.

        Raises:
            UnknownIntent: There is none.
        """
        return self._run(self._calls.status(intent))

    def reconcile(
        self,
        intent: str,
        *,
        attempt: int,
        outcome: str,
        evidence: Any,
        operator: str,
        result: Any = None,
        basis: str | None = None,
        over: bool = False,
    ) -> EffectStatus:
        """Record what really happened to a fenced attempt, and act on it.

        Args:
            intent: The intent.
            attempt: The attempt that was judged; another current one is refused.
            outcome: `happened`, `did_not_happen` or `compensated`.
            evidence: Any JSON value: how it is known.
            operator: Who says so.
            result: What it returned, for `happened`; not needed when a result is on record.
            basis: For `did_not_happen`: `holder_dead` or `fenced_downstream`.
            over: For `happened`: mint the certificate although something it observed was rolled back.

        Raises:
            UnknownIntent, AttemptMismatch, NotReconcilable: There is nothing to judge, or another attempt.
            IntentInFlight: Its tool may still be running.
            ClosureAborted, CommitConflict: What it observed was rolled back; another result is on record.
        """
        judgement = self._calls.reconcile(
            intent,
            attempt=attempt,
            outcome=outcome,
            result=result,
            evidence=evidence,
            operator=operator,
            basis=basis,
            over=over,
        )
        return self._follow(plans.reconcile(self._calls, judgement, intent))

    def clear(self, intent: str, *, attempt: int, basis: str, evidence: Any, operator: str) -> EffectStatus:
        """Record that a fenced attempt did not happen: the intent is runnable again. See `reconcile`."""
        return self.reconcile(
            intent, attempt=attempt, outcome="did_not_happen", evidence=evidence, operator=operator, basis=basis
        )

    @abstractmethod
    def commit(
        self, prepared: PreparedEffect | Mapping[str, Any], result: Any, *, closure: str = "require"
    ) -> EffectCert | Held:
        """Record the result and mint the certificate."""

    def compensate(
        self, effects: Iterable[FallenEffect], run: Callable[[PreparedEffect], Any], *, agent: str
    ) -> tuple[EffectCert | Held, ...]:
        """Undo what an abort answered with, each once, whoever else does the same.

        Args:
            effects: The `effects` of an abort's answer; those without a result or a compensation are passed over.
            run: The tool: it gets the compensation's ticket (tool, args) and returns the result.
            agent: Who undoes.

        Raises:
            FenceError: Of the first one that cannot be undone now; what was undone before stays undone.
            Exception: What `run` raised; that compensation is fenced, its outcome unknown.
        """
        return self._follow(plans.compensate(self._calls, effects, run, agent))

    def sweep(self) -> int:
        """Fence every effect of the namespace whose lease ran out; how many there were. Safe from many processes."""
        return self._follow(plans.sweep(self.namespace))

    def settle(self) -> Settled:
        """Do what callers may no longer be alive to do. Idempotent, from many processes.

        Expired leases are fenced, executed effects are committed when that was asked for and their closure is committed
        by now, and those with a dead member are aborted.
        """
        return self._follow(plans.settle(self.namespace))

    def promote(self, *, intent: str | None = None, branch: str | None = None, actor: str = OPERATOR) -> Committed:
        """Commit all of a closure, or of a branch and its closure, in one transaction, or none of it.

        Args:
            intent: An intent without a branch.
            branch: A branch; its effects are promoted by it only.
            actor: Who decides, for the record.

        Raises:
            ClosurePending: A member has not run yet, or belongs to another open branch; nothing moved.
            ClosureAborted: A member was rolled back, and so the set is now.
            UnknownIntent, UnknownBranch, ClosureTooLarge: Nothing moved.
        """
        name, operation = self._calls.promotion(intent, branch, actor)
        return require_committed(name, self._run(operation))

    def reconcile_branch(self, branch: str, *, actor: str = OPERATOR) -> Committed | Aborted | Pending:
        """Decide a branch if it can be decided: a total answer, and nothing half-done.

        Raises:
            UnknownBranch, ClosureTooLarge: Nothing moved.
        """
        return self._run(self._calls.promotion(None, branch, actor)[1])

    def abort_branch(self, branch: str, reason: str, *, actor: str = OPERATOR) -> Aborted:
        """Roll back every undecided effect of a branch, and everything that rests on them, without any ticket.

        Raises:
            UnknownBranch: There is none.
            BranchDecided: It is committed.
        """
        return self._run(self._calls.abort_branch(branch, reason, actor))

    def abort_intent(self, intent: str, *, attempt: int, reason: str, actor: str = OPERATOR) -> RolledBack:
        """Roll back one attempt and everything that rests on it, without its ticket.

        Raises:
            UnknownIntent, AttemptMismatch, NotReconcilable: There is nothing to roll back, or another attempt.
            CommitConflict: It is committed.
        """
        return self._run(self._calls.abort_intent(intent, attempt, reason, actor))

    def prepare_compensation(
        self, intent: str, *, attempt: int, agent: str, tool: str | None = None, args: Any = None
    ) -> Fresh | Replay:
        """Admit the undoing of a fenced attempt as an effect of its own; its commit releases the attempt.

        Args:
            intent: The intent to undo.
            attempt: The attempt to undo.
            agent: Who undoes it.
            tool: The tool that undoes it; the registered compensation's when not given.
            args: Its args; the registered compensation's when not given.

        Raises:
            IntentInFlight: The attempt's tool may still be running, or somebody else is undoing it.
            IntentFailed: An earlier undoing has an unknown outcome.
            NotReconcilable: The attempt is not fenced, or another one is current.
            InvalidRequest: No compensation was registered and none is given.
        """
        return self._follow(
            plans.prepare_compensation(self._calls, intent, attempt=attempt, agent=agent, tool=tool, args=args)
        )
