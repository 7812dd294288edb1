"""Asking for an admission, with patience, and for a commit: what the fences of both kinds do the same, as steps.

Many callers of one process that wait for one intent cost one poll: the first of them asks, and the others sleep until it has
an answer. A certificate that it gets is theirs as well, for an intent that refused them as in flight is the same action.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from effectfence_pg.checks import patience
from effectfence_pg.errors import (
    ClosurePending,
    FenceError,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    ReadSetUnsettled,
)
from effectfence_pg.sql import preparing
from effectfence_pg.sql.notices import notify
from effectfence_pg.steps import Pause, Steps, steps
from effectfence_pg.values import ClosureMode, EffectCert, FenceStats, Fresh, Replay, key_of
from effectfence_pg.waiting.recent import Recent
from effectfence_pg.waiting.room import Seat, SeatedPause, WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from effectfence_pg.calls import Calls
    from effectfence_pg.protocol.asked import Admission
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import EffectRequest, FenceConfig, Held, PreparedEffect

T = TypeVar("T")

_PATIENT = (IntentInFlight, ReadSetUnsettled)
_DECIDING = frozenset({"commit", "abort", "abort_intent", "reconcile"})
_HELD = (IntentInFlight, IntentFailed)

NOTIFY_SECONDS = 1.0
"""How long a notification may take that cannot be sent."""

RECENT_INTENTS = 10_000
"""Intents that this process has seen on record; the next call for one of them looks before it claims."""


class Memory:
    """What a fence remembers of its own calls: hints, counts and who waits for what. Safe to share between threads."""

    def __init__(self) -> None:
        self.recent = Recent(RECENT_INTENTS)
        self.room = WaitingRoom()
        self.retries = 0
        self._counts: dict[int, dict[str, int]] = {}

    def count(self, what: str) -> None:
        """One more answer of this kind. Each thread counts for itself, and waits for no other."""
        mine = self._counts.setdefault(get_ident(), {})
        mine[what] = mine.get(what, 0) + 1

    def count_retry(self) -> None:
        """One more transaction that is run again."""
        # The room's lock will do: a fork renews it, and nobody holds it for long.
        with self.room.lock:
            self.retries += 1

    def stats(self) -> FenceStats:
        """What was seen so far."""
        counts: Counter[str] = Counter()
        for of_a_thread in tuple(self._counts.values()):
            counts.update(dict(of_a_thread))
        admitted, replayed = counts.pop("admitted", 0), counts.pop("replayed", 0)
        return FenceStats(admitted=admitted, replayed=replayed, refused=counts)


def prepare(
    calls: Calls, memory: Memory, request: EffectRequest | Mapping[str, Any], wait_seconds: float | None
) -> Steps[Fresh | Replay]:
    """Admit, replay or refuse, with patience. The request is checked at the first step, before any database work."""
    patience_seconds = patience(wait_seconds, "wait_seconds")
    return admit(memory, calls.admission(request), patience_seconds, calls.config)


def admit(memory: Memory, call: Admission, patience_seconds: float, config: FenceConfig) -> Steps[Fresh | Replay]:
    """The same for a request that is checked. Called again with the same admission, it recognises its own success."""
    key = call.intent_key

    def ask() -> Operation[Fresh | Replay]:
        sealed = memory.recent.get(key)
        return preparing.replay(call) if sealed else preparing.prepare(call, known=sealed is not None)

    try:
        if patience_seconds:
            verdict = yield from waiting(ask, patience_seconds, _PATIENT, config, Seat(memory.room, key))
        else:
            verdict = yield from steps(ask(), config.retry_deadline_seconds)
    except FenceError as error:
        if isinstance(error, IntentMismatch):
            # It is on record; where its certificate was seen, that stays true.
            memory.recent.add(key, sealed=bool(memory.recent.get(key)))
        elif isinstance(error, _HELD):
            memory.recent.add(key)
        memory.count(error.code)
        raise
    memory.recent.add(key, sealed=verdict.replayed)
    memory.count("replayed" if verdict.replayed else "admitted")
    return verdict


def commit(
    calls: Calls,
    memory: Memory,
    given: PreparedEffect | Mapping[str, Any],
    result: Any,
    *,
    closure: str,
    timeout_seconds: float | None,
) -> Steps[EffectCert | Held]:
    """Record the result and mint the certificate; with `wait`, ask again while the closure is undecided."""
    timeout = patience(timeout_seconds, "timeout_seconds")
    return committing(memory, calls.commit(given, result, closure), closure, timeout, calls.config)


def committing(
    memory: Memory,
    operation: Operation[EffectCert | Held],
    closure: str,
    timeout_seconds: float,
    config: FenceConfig,
    *,
    insists: bool = False,
) -> Steps[EffectCert | Held]:
    """The same for a commit that is checked; it may be called again with the same operation.

    One that `insists` waits for a database that is away: nobody else has the ticket and the result.
    """
    taken = _committing(memory, operation, closure, timeout_seconds, config, insists=insists)
    return told(taken, operation, config)


def _committing(
    memory: Memory,
    operation: Operation[EffectCert | Held],
    closure: str,
    timeout_seconds: float,
    config: FenceConfig,
    *,
    insists: bool,
) -> Steps[EffectCert | Held]:
    if timeout_seconds and closure == ClosureMode.WAIT:
        verdict = yield from waiting(lambda: operation, timeout_seconds, (ClosurePending,), config, insists=insists)
    else:
        verdict = yield from steps(operation, config.retry_deadline_seconds, insists=insists)
    if isinstance(verdict, EffectCert):
        memory.recent.add(key_of(verdict.intent), sealed=True)
    return verdict


def told(taken: Steps[T], operation: Operation[Any], config: FenceConfig) -> Steps[T]:
    """Take the steps that decide an effect; then tell those who wait for it, when the fence is to do that."""
    if not config.notify or operation.name not in _DECIDING:
        return taken
    return _telling(taken, operation.parameters)


def _telling(taken: Steps[T], parameters: Mapping[str, Any]) -> Steps[T]:
    try:
        answer = yield from taken
    except FenceError:
        # A refusal may have decided it as well: whoever waits looks.
        yield from _tell(parameters)
        raise
    yield from _tell(parameters)
    return answer


def _tell(parameters: Mapping[str, Any]) -> Steps[None]:
    # A notification that cannot be sent is one that the next poll makes up for.
    with contextlib.suppress(Exception):
        yield from steps(notify(parameters["namespace"], parameters["intent_key"]), NOTIFY_SECONDS)


def waiting(
    make: Callable[[], Operation[T]],
    patience_seconds: float,
    undecided: tuple[type[FenceError], ...],
    config: FenceConfig,
    seat: Seat | None = None,
    *,
    insists: bool = False,
) -> Steps[T]:
    """Run an operation; while it answers that something is undecided, ask again until the patience is over.

    With a seat, one caller of this process asks for all that wait for the same intent.

    Raises:
        FenceError: The last answer.
    """
    ends = time.monotonic() + patience_seconds
    pause = config.poll_initial_seconds
    answer: Any = None
    moved = False
    try:
        while answer is None:
            try:
                answer = yield from steps(make(), config.retry_deadline_seconds, insists=insists)
            except undecided as error:
                left = ends - time.monotonic()
                if left <= 0 or _never(error):
                    raise
                if seat is not None and isinstance(error, IntentInFlight):
                    seat.take()
            except FenceError:
                moved = True
                raise
            else:
                moved = True
                break
            if seat is None or not seat.taken or seat.leads:
                yield _jittered(pause, left, seat)
                pause = min(pause * 2, config.poll_max_seconds)
            else:
                yield SeatedPause(left, seat=seat)
                answer = seat.answer
        return answer
    finally:
        if seat is not None:
            seat.leave(answer if isinstance(answer, Replay) else None, decided=moved)


def _jittered(pause: float, left: float, seat: Seat | None) -> Pause:
    """Not in step with other processes: half of it to all of it."""
    seconds = min(random.uniform(pause / 2, pause), left)  # noqa: S311
    return SeatedPause(seconds, seat=seat) if seat is not None and seat.listens else Pause(seconds)


def _never(error: FenceError) -> bool:
    """Whether waiting is of no use: what was read before it settled stays refused, whatever becomes of it."""
    return isinstance(error, ReadSetUnsettled) and any(not entry.blockers for entry in error.entries)
