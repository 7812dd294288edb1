"""The same verbs to be awaited: every body hands over what `surface` hands over, and what they mean is documented there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from effectfence_pg import plans
from effectfence_pg.protocol.speculation import require_committed
from effectfence_pg.sql import verbs
from effectfence_pg.surface import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

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


class AsyncSurface(ABC):
    """Everything that is one operation or a plan of some, whoever's transaction runs it."""

    _calls: Calls

    @abstractmethod
    async def _run(self, operation: Operation[T]) -> T:
        """Run an operation and what it chains."""

    async def _follow(self, plan: plans.Plan[T]) -> T:
        return await plans.afollow(plan, self._run)

    @property
    def namespace(self) -> str:
        """The tenant."""
        return self._calls.namespace

    @property
    def config(self) -> FenceConfig:
        """Limits and defaults."""
        return self._calls.config

    async def abort(
        self, prepared: PreparedEffect | Mapping[str, Any], reason: str, *, effect: str = "unknown"
    ) -> RolledBack:
        """Give up an attempt, or roll back what is recorded. See `Fence.abort`."""
        return await self._run(self._calls.abort(prepared, reason, effect))

    async def renew(self, prepared: PreparedEffect | Mapping[str, Any]) -> PreparedEffect:
        """Extend the lease. See `Fence.renew`."""
        return await self._run(verbs.renew(self._calls.ticket(prepared)))

    async def observe(self, *domains: str) -> tuple[ReadSetEntry, ...]:
        """The number of each domain and whether it is settled. See `Fence.observe`."""
        return await self._run(self._calls.observe(domains))

    async def observe_late(
        self,
        prepared: PreparedEffect | Mapping[str, Any],
        entries: tuple[ReadSetEntry | Mapping[str, Any], ...] = (),
        intents: tuple[str, ...] = (),
    ) -> PreparedEffect:
        """Add what an effect in flight observed since. See `Fence.observe_late`."""
        return await self._run(self._calls.observe_late(prepared, entries, intents))

    async def current(self, domain: str) -> int:
        """The last number given in a domain, 0 when it was never touched. See `Fence.current`."""
        return (await self.observe(domain))[0].seq

    async def reserve(self, domain: str, expected_seq: int) -> int:
        """The bare compare-and-set. See `Fence.reserve`."""
        return await self._run(self._calls.reserve(domain, expected_seq))

    async def status(self, intent: str) -> EffectStatus:
        """Where the current attempt of an intent stands. See `Fence.status`."""
        return await self._run(self._calls.status(intent))

    async def reconcile(
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
        """Record what really happened to a fenced attempt, and act on it. See `Fence.reconcile`."""
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
        return await self._follow(plans.reconcile(self._calls, judgement, intent))

    async def clear(self, intent: str, *, attempt: int, basis: str, evidence: Any, operator: str) -> EffectStatus:
        """Record that a fenced attempt did not happen. See `Fence.clear`."""
        return await self.reconcile(
            intent, attempt=attempt, outcome="did_not_happen", evidence=evidence, operator=operator, basis=basis
        )

    async def compensate(
        self,
        effects: Iterable[FallenEffect],
        run: Callable[[PreparedEffect], Awaitable[Any] | Any],
        *,
        agent: str,
    ) -> tuple[EffectCert | Held, ...]:
        """Undo what an abort answered with, each once; `run` may be a coroutine function. See `Fence.compensate`."""
        return await self._follow(plans.compensate(self._calls, effects, run, agent))

    async def sweep(self) -> int:
        """Fence every effect of the namespace whose lease ran out. See `Fence.sweep`."""
        return await self._follow(plans.sweep(self.namespace))

    async def settle(self) -> Settled:
        """Do what callers may no longer be alive to do. See `Fence.settle`."""
        return await self._follow(plans.settle(self.namespace))

    async def promote(
        self, *, intent: str | None = None, branch: str | None = None, actor: str = OPERATOR
    ) -> Committed:
        """Commit all of a closure, or of a branch and its closure, or none of it. See `Fence.promote`."""
        name, operation = self._calls.promotion(intent, branch, actor)
        return require_committed(name, await self._run(operation))

    async def reconcile_branch(self, branch: str, *, actor: str = OPERATOR) -> Committed | Aborted | Pending:
        """Decide a branch if it can be decided. See `Fence.reconcile_branch`."""
        return await self._run(self._calls.promotion(None, branch, actor)[1])

    async def abort_branch(self, branch: str, reason: str, *, actor: str = OPERATOR) -> Aborted:
        """Roll back every undecided effect of a branch, and what rests on them. See `Fence.abort_branch`."""
        return await self._run(self._calls.abort_branch(branch, reason, actor))

    async def abort_intent(self, intent: str, *, attempt: int, reason: str, actor: str = OPERATOR) -> RolledBack:
        """Roll back one attempt and what rests on it, without its ticket. See `Fence.abort_intent`."""
        return await self._run(self._calls.abort_intent(intent, attempt, reason, actor))

    async def prepare_compensation(
        self, intent: str, *, attempt: int, agent: str, tool: str | None = None, args: Any = None
    ) -> Fresh | Replay:
        """Admit the undoing of a fenced attempt as an effect of its own. See `Fence.prepare_compensation`."""
        return await self._follow(
            plans.prepare_compensation(self._calls, intent, attempt=attempt, agent=agent, tool=tool, args=args)
        )
