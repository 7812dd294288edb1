"""What an effect pays for what it rests on: long histories, live closures, and decisions about thousands at once."""

from __future__ import annotations

import contextlib
import math
import resource
import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.actions import LEASE_SECONDS, RESULT, open_fence
from benchmarks.chains import WALK, first, last, write_chain
from benchmarks.results import BenchFailedError, Result, Target, median_ratio
from effectfence_pg import ClosurePending, EffectRequest, Fence, Fresh, Held, PreparedEffect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import psycopg

    from benchmarks.databases import Bench

MODE: Final = "on"

NO_HISTORY: Final = "commit, no history"
HISTORY: Final = "commit, {members} committed below"
WALKED: Final = "bare recursive walk, {members} edges"
CHECK: Final = "commit check, {members} live members"
PROMOTE: Final = "promote {members}"
ABORT: Final = "abort what {members} rest on"

Times = dict[str, list[float]]
"""Microseconds of each repetition, by what was measured."""


def measure(bench: Bench) -> Generator[Result]:
    """Each repetition measures everything once more, the short chains beside the long ones."""
    longest = bench.scale.closure_members
    lengths = (longest // 10, longest)
    with contextlib.ExitStack() as exits:
        work = Work(bench, exits)
        for repetition in range(1, bench.scale.repetitions + 1):
            bench.say(f"closure: repetition {repetition} of {bench.scale.repetitions}")
            for length in lengths:
                work.repeat(length)
        yield from _commits(work.times, longest)
        yield from _decisions(work.times, lengths, work.peak_kib)


class Work:
    """One caller with a connection of its own, and a namespace for every chain."""

    def __init__(self, bench: Bench, exits: contextlib.ExitStack) -> None:
        self._bench = bench
        self._exits = exits
        self._connection: psycopg.Connection[Any] = exits.enter_context(bench.connect(MODE))
        # The walk is planned once, as the fence's statements are.
        self._connection.execute("SET plan_cache_mode = force_generic_plan")
        self._base = exits.enter_context(open_fence(bench.url_for(MODE), connections=1, namespace="closure"))
        self.times: Times = defaultdict(list)
        self.peak_kib = 0

    def repeat(self, length: int) -> None:
        """Everything about one length, once."""
        chain = self._chain(length)
        self._check(chain, length)
        before = _peak_kib()
        self._decide(PROMOTE, length, lambda: chain.promote(intent=last(length)).effects)
        self._history(chain, length)
        fallen = self._chain(length)
        self._decide(
            ABORT, length, lambda: len(fallen.abort_intent(first(length), attempt=1, reason="no", actor="b").effects)
        )
        self.peak_kib = max(self.peak_kib, _peak_kib() - before)

    def _chain(self, length: int) -> Fence:
        """A fence in a namespace that has just this chain, on the same connection as all others."""
        namespace = self._bench.fresh_names("chain", 1)[0]
        write_chain(self._connection, namespace, length)
        fence = Fence(self._base.engine, namespace=namespace, config=self._base.config)
        fence.current("warm")
        return fence

    def _check(self, chain: Fence, length: int) -> None:
        """The commit asked for again and again walks all of it each time, and changes nothing."""
        ticket = _admitted(chain, "top", last(length))
        chain.commit(ticket, RESULT, closure="hold")
        walk = {"namespace": chain.namespace, "intent": "top"}
        checked, walked = [], []
        for _ in range(self._bench.scale.closure_checks):
            walked.append(_took(lambda: self._connection.execute(WALK, walk, prepare=True).fetchone(), (length,)))
            checked.append(_took(lambda: _pending(chain, ticket), True))
        self.times[WALKED.format(members=length)].append(median(walked))
        self.times[CHECK.format(members=length)].append(median(checked))

    def _history(self, chain: Fence, length: int) -> None:
        """Beside the commit of an effect that rests on nothing."""
        with_history, without = [], []
        for at in range(self._bench.scale.block_operations):
            for taken, intent, observes in (
                (without, f"alone-{at}", ()),
                (with_history, f"above-{at}", (last(length),)),
            ):
                ticket = _admitted(chain, intent, *observes)
                taken.append(_took(lambda ticket=ticket: isinstance(chain.commit(ticket, RESULT), Held), False))
        self.times[NO_HISTORY].append(median(without))
        self.times[HISTORY.format(members=length)].append(median(with_history))

    def _decide(self, name: str, length: int, decide: Callable[[], int]) -> None:
        self.times[name.format(members=length)].append(_took(decide, length))


def _admitted(fence: Fence, intent: str, *observes: str) -> PreparedEffect:
    request = EffectRequest(
        intent=intent, domain=intent, tool="charge_card", agent="bench", observes=observes, lease_seconds=LEASE_SECONDS
    )
    verdict = fence.prepare(request)
    if not isinstance(verdict, Fresh):
        raise BenchFailedError(f"{intent} is on record")
    return verdict.prepared


def _pending(fence: Fence, ticket: PreparedEffect) -> bool:
    try:
        fence.commit(ticket, RESULT)
    except ClosurePending:
        return True
    return False


def _took(call: Callable[[], Any], expected: Any) -> float:
    """Microseconds, of a call that did what it should."""
    begun = time.perf_counter_ns()
    done = call()
    taken = (time.perf_counter_ns() - begun) / 1000
    if done != expected:
        raise BenchFailedError(f"{done!r} was answered, and not {expected!r}")
    return taken


def _peak_kib() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _result(name: str, unit: str, figure: float, **more: Any) -> Result:
    return Result("closure", name, MODE, unit, figure, **more)


def _commits(times: Times, members: int) -> Generator[Result]:
    for name, floor, target in (
        (NO_HISTORY, None, None),
        (HISTORY, NO_HISTORY, Target("<=", 1.5)),
        (WALKED, None, None),
        (CHECK, WALKED, Target("<=", 1.5)),
    ):
        taken = times[name.format(members=members)]
        ratio = None
        if floor is not None:
            # Both lengths have a commit without a history: the one that was measured beside this.
            floors = times[floor.format(members=members)][-2 * len(taken) :]
            ratio = median_ratio(taken, floors[1::2] if floor == NO_HISTORY else floors)
        yield _result(
            name.format(members=f"{members:,}"),
            "us",
            median(taken),
            floor=None if floor is None else floor.format(members=f"{members:,}"),
            ratio=ratio,
            target=target,
        )


def _decisions(times: Times, lengths: Sequence[int], peak_kib: int) -> Generator[Result]:
    short, long = lengths
    for name in (PROMOTE, ABORT):
        taken = times[name.format(members=long)]
        rates = [1_000_000 * long / one for one in taken]
        shown = name.format(members=f"{long:,}")
        yield _result(shown, "per second", median(rates), target=Target(">=", 5000), facts={"slowest": min(rates)})
    for name in (CHECK, PROMOTE, ABORT):
        growth = zip(times[name.format(members=short)], times[name.format(members=long)], strict=True)
        slopes = [math.log(after / before) / math.log(long / short) for before, after in growth]
        shown = f"{name.format(members=f'{short:,} to {long:,}')}: slope"
        yield _result(shown, "(log-log)", median(slopes), target=Target("<=", 1.1), facts={"steepest": max(slopes)})
    shown = f"client memory for {long:,}"
    yield _result(shown, "MB", peak_kib / 1024, target=Target("<=", 200), facts={"process_mb": _peak_kib() / 1024})
