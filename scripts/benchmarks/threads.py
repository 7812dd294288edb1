"""Sixteen callers at once: the throughput of fresh effects beside the floor's, and what conflicts cost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.actions import Floor, backends, fresh, make_floor, open_fence, request
from benchmarks.databases import Bench, ServerCpu
from benchmarks.results import MODES, Result, Target, median_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from effectfence_pg import EffectRequest, Fence

FLOOR: Final = "floor: INSERT, UPDATE"
STORED: Final = "distinct intents, {stored} stored"
ANALYZED: Final = "distinct intents, {stored} stored and analyzed"
EMPTY: Final = "distinct intents, empty tables"
HOT: Final = "distinct intents, one domain"
HOT_DOMAIN: Final = "hot"

THROUGHPUT: Final = Target(">=", 0.45, percent=True)
RETRIES: Final = Target("<=", 50)


@dataclass(frozen=True)
class Window:
    """What all threads together did in a window of time; CPU in microseconds per operation."""

    per_second: float
    retries_per_1000: float
    client: float
    server: float


def measure(bench: Bench) -> Generator[Result]:
    """Floor and fence in turn, in each repetition from empty tables on."""
    for mode in MODES:
        windows: dict[str, list[Window]] = defaultdict(list)
        with contextlib.ExitStack() as exits:
            work = Work(bench, mode, exits)
            work.warm_up()
            for repetition in range(1, bench.scale.repetitions + 1):
                bench.say(f"threads, synchronous_commit {mode}: repetition {repetition} of {bench.scale.repetitions}")
                bench.start_over()
                windows[EMPTY].append(work.distinct())
                bench.start_over()
                work.store()
                windows[FLOOR].append(work.floor())
                windows[STORED].append(work.distinct())
                bench.analyze()
                windows[ANALYZED].append(work.distinct())
                windows[HOT].append(work.hot())
        yield from _results(bench, mode, windows)


class Work:
    """The threads' connections, and what they do with them. Thread number `at` is the caller of every action."""

    def __init__(self, bench: Bench, mode: str, exits: contextlib.ExitStack) -> None:
        """Open one connection of each kind for every thread."""
        self._bench, self._count = bench, bench.scale.threads
        connections = [exits.enter_context(bench.connect(mode)) for _ in range(self._count)]
        make_floor(connections[0])
        self._floors = [Floor(connection) for connection in connections]
        self._fence: Fence = exits.enter_context(open_fence(bench.url_for(mode), connections=self._count))
        self._asked: list[list[EffectRequest]] = [[] for _ in range(self._count)]
        self._theirs = ServerCpu([floor.pid for floor in self._floors])
        self._ours = ServerCpu(backends(self._fence, self._count))
        self._pool = exits.enter_context(ThreadPoolExecutor(self._count))

    def floor(self) -> Window:
        """INSERT and UPDATE, each thread on a connection of its own."""
        return self._window(lambda at: self._floors[at].write(next(self._bench.names)), self._theirs)

    def distinct(self) -> Window:
        """Every effect has an intent and a domain of its own."""
        self._ask()
        return self._window(self._fresh, self._ours)

    def hot(self) -> Window:
        """Every effect takes its number in the same domain."""
        self._ask(HOT_DOMAIN)
        return self._window(self._fresh, self._ours)

    def store(self) -> None:
        """Put intents on record, over the connections that are measured: their statements are prepared again."""
        self._ask()
        share, rest = divmod(self._bench.scale.stored_intents, self._count)
        self._all(lambda at: [self._fresh(at) for _ in range(share + (at < rest))])

    def warm_up(self) -> None:
        """Have every statement prepared on every connection."""
        self._ask()
        for _ in range(self._bench.scale.warm_up_operations):
            self._all(lambda at: (self._floors[at].write(next(self._bench.names)), self._fresh(at)))

    def _ask(self, domain: str | None = None) -> None:
        """Make what each thread will ask for, before the clock starts; should it not suffice, the thread makes its own."""
        self._domain = domain
        for asked in self._asked:
            asked[:] = [self._request() for _ in range(self._bench.scale.requests_ahead)]

    def _request(self) -> EffectRequest:
        return request(f"threads-{next(self._bench.names):08d}", domain=self._domain)

    def _fresh(self, at: int) -> None:
        asked = self._asked[at]
        fresh(self._fence, asked.pop() if asked else self._request())

    def _all(self, act: Callable[[int], object]) -> None:
        for done in [self._pool.submit(act, at) for at in range(self._count)]:
            done.result()

    def _window(self, act: Callable[[int], object], server: ServerCpu) -> Window:
        seconds, start = self._bench.scale.window_seconds, threading.Barrier(self._count)
        in_time, done = [0] * self._count, [0] * self._count

        def work(at: int) -> None:
            start.wait()
            ends = time.perf_counter() + seconds
            now = 0.0
            while now < ends:
                act(at)
                now = time.perf_counter()
                done[at] += 1
                in_time[at] += now < ends

        retries, client, used = self._fence.retries, time.process_time_ns(), server.nanoseconds()
        self._all(work)
        # An operation that was under way at the end counts for what it cost, and not for the throughput.
        total = max(sum(done), 1)
        return Window(
            per_second=sum(in_time) / seconds,
            retries_per_1000=1000 * (self._fence.retries - retries) / total,
            client=(time.process_time_ns() - client) / 1000 / total,
            server=(server.nanoseconds() - used) / 1000 / total,
        )


def _results(bench: Bench, mode: str, windows: dict[str, list[Window]]) -> Generator[Result]:
    floors = windows[FLOOR]
    for name in (FLOOR, STORED, ANALYZED, EMPTY, HOT):
        taken, shown = windows[name], name.format(stored=f"{bench.scale.stored_intents:,}")
        facts: dict[str, Any] = {"client_cpu_us": median(window.client for window in taken)}
        if any(window.server for window in taken):
            facts["server_cpu_us"] = median(window.server for window in taken)
        compared = name != FLOOR
        if compared:
            facts["client_cpu_ratio"] = median_ratio([w.client for w in taken], [w.client for w in floors])
        if compared and "server_cpu_us" in facts:
            facts["server_cpu_ratio"] = median_ratio([w.server for w in taken], [w.server for w in floors])
        yield Result(
            group="threads",
            name=shown,
            synchronous_commit=mode,
            unit="per second",
            figure=median(window.per_second for window in taken),
            floor=FLOOR if compared else None,
            ratio=median_ratio([w.per_second for w in taken], [w.per_second for w in floors]) if compared else None,
            target=THROUGHPUT if name == STORED else None,
            facts={**facts, "threads": bench.scale.threads},
        )
        if compared:
            yield Result(
                group="threads",
                name=f"{shown}: retries",
                synchronous_commit=mode,
                unit="per 1,000",
                figure=median(window.retries_per_1000 for window in taken),
                target=RETRIES if name == STORED else None,
                facts={"highest": max(window.retries_per_1000 for window in taken)},
            )
