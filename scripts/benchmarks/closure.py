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
from benchmarks.chains import WALK, WALK_OF_STATES, first, last, write_chain
from benchmarks.results import BenchFailedError, Result, Target, median_ratio
from effectfence_pg import ClosurePending, EffectRequest, Fence, Fresh, Held, PreparedEffect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import psycopg

    from benchmarks.databases import Bench

MODE: Final = "on"

NO_HISTORY: Final = "commit, no history"
HISTORY: Final = "commit, {members} committed below"
WALKED: Final = "bare recursive walk: {members} edges"
ASKED: Final = "bare recursive walk: {members} edges and states"
CHECK: Final = "commit check, {members} live members"
PROMOTE: Final = "promote {members}"
ABORT: Final = "abort what {members} rest on"

Times = dict[tuple[str, int], list[float]]
"""Microseconds of each repetition, by what was measured and the length of its chain."""


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
        yield from _decisions(work.times, lengths)


class Work:
    """One caller with a connection of its own, and a namespace for every chain."""

    def __init__(self, bench: Bench, exits: contextlib.ExitStack) -> None:
        self._bench = bench
        self._exits = exits
        self._connection: psycopg.Connection[Any] = exits.enter_context(bench.connect(MODE))
        # The walks are planned once and run in the isolation of a commit, as the fence's statements are.
        self._connection.execute("SET plan_cache_mode = force_generic_plan")
        self._connection.execute("SET default_transaction_isolation = serializable")
        self._base = exits.enter_context(open_fence(bench.url_for(MODE), connections=1, namespace="closure"))
        self.times: Times = defaultdict(list)

    def repeat(self, length: int) -> None:
        """Everything about one length, once."""
        chain = self._chain(length)
        self._check(chain, length)
        self._decide(PROMOTE, length, lambda: chain.promote(intent=last(length)).effects)
        self._history(chain, length)
        fallen = self._chain(length)
        self._decide(
            ABORT, length, lambda: len(fallen.abort_intent(first(length), attempt=1, reason="no", actor="b").effects)
        )

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
        taken: dict[str, list[float]] = defaultdict(list)
        for _ in range(self._bench.scale.closure_checks):
            for name, statement in ((WALKED, WALK), (ASKED, WALK_OF_STATES)):
                taken[name].append(_took(lambda asked=statement: self._one(asked, walk), length))
            taken[CHECK].append(_took(lambda: _pending(chain, ticket), True))
        for name, times in taken.items():
            self.times[name, length].append(median(times))

    def _one(self, statement: str, values: dict[str, str]) -> Any:
        return (self._connection.execute(statement, values, prepare=True).fetchone() or (None,))[0]

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
        self.times[NO_HISTORY, length].append(median(without))
        self.times[HISTORY, length].append(median(with_history))

    def _decide(self, name: str, length: int, decide: Callable[[], int]) -> None:
        self.times[name, length].append(_took(decide, length))


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


def _result(name: str, unit: str, figure: float, **more: Any) -> Result:
    return Result("closure", name, MODE, unit, figure, **more)


def _shown(name: str, members: int) -> str:
    return name.format(members=f"{members:,}")


def _commits(times: Times, members: int) -> Generator[Result]:
    limit = Target("<=", 1.5)
    for name, floor, target in (
        (NO_HISTORY, None, None),
        (HISTORY, NO_HISTORY, limit),
        (WALKED, None, None),
        (ASKED, WALKED, None),
        (CHECK, ASKED, limit),
    ):
        taken = times[name, members]
        yield _result(
            _shown(name, members),
            "us",
            median(taken),
            floor=None if floor is None else _shown(floor, members),
            ratio=None if floor is None else median_ratio(taken, times[floor, members]),
            target=target,
            facts={"ratio_to_edges_alone": median_ratio(taken, times[WALKED, members])} if name == CHECK else {},
        )


def _decisions(times: Times, lengths: Sequence[int]) -> Generator[Result]:
    short, long = lengths
    for name in (PROMOTE, ABORT):
        rates = [1_000_000 * long / taken for taken in times[name, long]]
        yield _result(
            _shown(name, long), "per second", median(rates), target=Target(">=", 5000), facts={"slowest": min(rates)}
        )
    for name in (CHECK, PROMOTE, ABORT):
        pairs = zip(times[name, short], times[name, long], strict=True)
        slopes = [math.log(after / before) / math.log(long / short) for before, after in pairs]
        yield _result(
            f"{name.format(members=f'{short:,} to {long:,}')}: slope",
            "(log-log)",
            median(slopes),
            target=Target("<=", 1.1),
            facts={"slope": median(slopes), "steepest": max(slopes)},
        )
    # The most that this process ever had: with all that it had before as well.
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield _result(f"client memory, {long:,} effects", "MB", peak_mb, target=Target("<=", 200))
