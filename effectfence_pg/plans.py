"""Verbs that take more than one operation, written once: they ask for operations and are told what came of them.

A plan does no I/O and knows no transaction. `follow` and `afollow` run one, in the caller's transaction or in ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from effectfence_pg.errors import SerializationConflict
from effectfence_pg.sql import fencing, preparing, speculation
from effectfence_pg.sql.operation import following
from effectfence_pg.steps import MAX_STEPS
from effectfence_pg.unfinished import finished, require_callable
from effectfence_pg.values import AbortEffect, ClosureMode, Replay, Settled

if TYPE_CHECKING:
    from effectfence_pg.calls import Calls
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import EffectCert, EffectStatus, FallenEffect, Fresh, Held, PreparedEffect

T = TypeVar("T")

Plan = Generator["Operation[Any] | Invoke", Any, T]

BATCH = 500
"""Effects that one transaction of a sweep, of settling or of renewing decides."""


def ask(operation: Operation[T]) -> Plan[T]:
    """One operation of a plan."""
    return (yield operation)


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call something of the caller's between two operations, and send back what it returned or raised."""

    function: Callable[[Any], Any]
    argument: Any


def follow(plan: Plan[T], run: Callable[[Operation[Any]], Any]) -> T:
    """Run the operations that a plan asks for, here and now."""
    try:
        asked = next(plan)
        while True:
            try:
                answer = asked.function(asked.argument) if isinstance(asked, Invoke) else run(asked)
            except BaseException as error:  # noqa: BLE001 (every outcome goes back to the plan, which decides)
                asked = plan.throw(error)
            else:
                asked = plan.send(answer)
    except StopIteration as done:
        return done.value


async def afollow(plan: Plan[T], run: Callable[[Operation[Any]], Awaitable[Any]]) -> T:
    """The same in an event loop; what is invoked may be a coroutine function."""
    try:
        asked = next(plan)
        while True:
            try:
                answer = asked.function(asked.argument) if isinstance(asked, Invoke) else run(asked)
                while isawaitable(answer):
                    answer = await answer
            except BaseException as error:  # noqa: BLE001
                asked = plan.throw(error)
            else:
                asked = plan.send(answer)
    except StopIteration as done:
        return done.value


def chained(operation: Operation[T]) -> Plan[T]:
    """An operation and what it chains in one transaction: here the verdict *rows* are what is sent back.

    Raises:
        SerializationConflict: It goes on and on; what this transaction sees is not what others did.
    """
    for _ in range(MAX_STEPS):
        verdict = operation.interpret((yield operation))
        then = following(verdict)
        if then is None:
            return cast("T", verdict)
        operation = then
    raise SerializationConflict(sqlstate="40001")


def sweep(namespace: str) -> Plan[int]:
    """Fence every effect whose lease ran out; how many there were."""
    fenced = 0
    while True:
        keys, attempts = yield from ask(fencing.expired(namespace, BATCH))
        if not keys:
            return fenced
        fenced += yield from ask(fencing.fence_expired(namespace, keys, attempts))


def settle(namespace: str) -> Plan[Settled]:
    """Fence what expired, then decide executed effects until nothing moves."""
    fenced, committed, aborted = (yield from sweep(namespace)), 0, 0
    while True:
        keys, attempts = yield from ask(speculation.undecided(namespace, BATCH))
        done = (yield from ask(speculation.settle(namespace, keys, attempts))) if keys else (0, 0)
        if done == (0, 0):
            return Settled(fenced=fenced, committed=committed, aborted=aborted)
        committed, aborted = committed + done[0], aborted + done[1]


def reconcile(calls: Calls, judgement: Operation[None], intent: str) -> Plan[EffectStatus]:
    """Record what really happened, then read where that leaves the intent."""
    yield from ask(judgement)
    return (yield from ask(calls.status(intent)))


def prepare_compensation(
    calls: Calls, intent: str, *, attempt: int, agent: str, tool: str | None = None, args: Any = None
) -> Plan[Fresh | Replay]:
    """Read what is to be undone, then admit the undoing."""
    target = yield from ask(calls.target(intent, attempt))
    return (yield from ask(preparing.prepare(calls.compensation(target, agent, tool, args))))


def compensate(
    calls: Calls, effects: Iterable[FallenEffect], run: Callable[[PreparedEffect], Any], agent: str
) -> Plan[tuple[EffectCert | Held, ...]]:
    """Undo what an abort answered with, one after the other, each as an effect of its own."""
    require_callable(run, "run")
    done: list[EffectCert | Held] = []
    for effect in effects:
        if not effect.due or effect.compensation is None:
            continue
        verdict = yield from prepare_compensation(calls, effect.intent, attempt=effect.attempt, agent=agent)
        if isinstance(verdict, Replay):
            done.append(verdict.certificate)
            continue
        try:
            result = finished((yield Invoke(run, verdict.prepared)), intent=verdict.prepared.intent)
        except BaseException as error:
            reason = f"the compensation raised {type(error).__name__}"
            yield from ask(calls.abort(verdict.prepared, reason, AbortEffect.UNKNOWN))
            raise
        done.append((yield from ask(calls.commit(verdict.prepared, result, ClosureMode.REQUIRE))))
    return tuple(done)
