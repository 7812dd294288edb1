"""One caller, one connection: what each verb takes, beside the least that the driver takes."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Any, Final

from benchmarks.actions import (
    OTHER_ARGS,
    Floor,
    backends,
    fresh,
    make_floor,
    open_fence,
    refused,
    replay,
    request,
    stranger,
)
from benchmarks.databases import Bench, ServerCpu
from benchmarks.places import TOGETHER, placed, places
from benchmarks.results import MODES, Result, Target, median_ratio
from effectfence_pg import FenceError, IntentInFlight, IntentMismatch, ReadSetStale

if TYPE_CHECKING:
    from effectfence_pg import EffectRequest, Fence

WRITE_FLOOR: Final = "floor: INSERT, UPDATE"
READ_FLOOR: Final = "floor: SELECT"

Block = tuple[Callable[[Any], object], Sequence[Any]]
"""A call, and what it is called with, one after the other."""


@dataclass(frozen=True)
class Case:
    """One line of the table; `block` makes so many operations, outside the clock."""

    name: str
    floor: str
    block: Callable[[int], Block]
    server: ServerCpu
    target: Target | None = None


@dataclass(frozen=True)
class Sample:
    """What one repetition of a case took, per operation, in microseconds."""

    times: list[float]
    client: float
    server: float

    @property
    def wall(self) -> float:
        """The median operation."""
        return median(self.times)


def measure(bench: Bench) -> Generator[Result]:
    """Every case in turn, block by block, in both modes, with the two sides on a core each and on one."""
    with contextlib.ExitStack() as exits:
        cases = {mode: _cases(bench, mode, exits) for mode in MODES}
        samples: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
        for mode in MODES:
            for case in cases[mode]:
                _repetition([case], bench.scale.warm_up_operations, blocks=1)
        pids = [pid for mode in MODES for case in cases[mode] for pid in case.server.pids]
        wheres = places(pids)
        for repetition in range(1, bench.scale.repetitions + 1):
            bench.say(f"core: repetition {repetition} of {bench.scale.repetitions}")
            for where, mode in product(wheres, MODES):
                with placed(where, pids):
                    taken = _repetition(cases[mode], bench.scale.block_operations, bench.scale.blocks)
                for case, sample in zip(cases[mode], taken, strict=True):
                    samples[where, mode, case.name].append(sample)
        for where, mode in product(wheres, MODES):
            for case in cases[mode]:
                yield _result(where, mode, case, samples[where, mode, case.name], samples[where, mode, case.floor])


def _cases(bench: Bench, mode: str, exits: contextlib.ExitStack) -> list[Case]:
    connection = exits.enter_context(bench.connect(mode))
    make_floor(connection)
    floor = Floor(connection)
    fence = exits.enter_context(open_fence(bench.url_for(mode), connections=1))
    ours, theirs = ServerCpu(backends(fence, 1)), ServerCpu([floor.pid])
    # As many as the largest block, so that a fence which has not seen them meets each of them once.
    count = max(bench.scale.block_operations, bench.scale.warm_up_operations)
    done, held = bench.fresh_names(f"done-{mode}", count), bench.fresh_names(f"held-{mode}", count)
    for intent in done:
        fresh(fence, request(intent))
    for intent in held:
        fence.prepare(request(intent))
    rows = [next(bench.names) for _ in range(count)]
    for row in rows:
        floor.write(row)
    return [
        Case(WRITE_FLOOR, WRITE_FLOOR, lambda n: (floor.write, [next(bench.names) for _ in range(n)]), theirs),
        Case(
            "fresh: prepare, commit",
            WRITE_FLOOR,
            lambda n: (lambda asked: fresh(fence, asked), requests(bench.fresh_names(f"fresh-{mode}", n))),
            ours,
            Target("<=", 2.0),
        ),
        Case(READ_FLOOR, READ_FLOOR, lambda n: (floor.read, rows[:n]), theirs),
        *(Case(name, READ_FLOOR, block, ours, target) for name, block, target in _reads(bench, fence, done, held)),
    ]


def _reads(
    bench: Bench, fence: Fence, done: list[str], held: list[str]
) -> list[tuple[str, Callable[[int], Block], Target | None]]:
    def replays(one: Fence) -> Callable[[EffectRequest], object]:
        return lambda asked: replay(one, asked)

    def refusals(one: Fence, kind: type[FenceError]) -> Callable[[EffectRequest], object]:
        return lambda asked: refused(kind, lambda: one.prepare(asked))

    def stale(names: list[str]) -> list[EffectRequest]:
        return requests(names, domain=done[0], rests=True)

    limit = Target("<=", 2.0)
    return [
        ("replay", lambda n: (replays(fence), requests(done[:n])), limit),
        ("replay, not seen before", lambda n: (replays(stranger(fence)), requests(done[:n])), limit),
        ("refusal: in flight", lambda n: (refusals(fence, IntentInFlight), requests(held[:n])), None),
        (
            "refusal: in flight, not seen before",
            lambda n: (refusals(stranger(fence), IntentInFlight), requests(held[:n])),
            None,
        ),
        (
            "refusal: mismatch",
            lambda n: (refusals(fence, IntentMismatch), requests(done[:n], args=OTHER_ARGS)),
            None,
        ),
        (
            "refusal: stale read set",
            lambda n: (refusals(fence, ReadSetStale), stale(bench.fresh_names("stale", n))),
            None,
        ),
        ("request: one EffectRequest", lambda n: (request, bench.fresh_names("made", n)), None),
    ]


def requests(intents: list[str], **more: Any) -> list[EffectRequest]:
    """What is asked for, made before the clock starts: the floor's values are made before as well."""
    return [request(intent, **more) for intent in intents]


def _repetition(cases: list[Case], operations: int, blocks: int) -> list[Sample]:
    """A few operations of every case in turn, so that a slow moment of the machine meets all of them."""
    times: list[list[float]] = [[] for _ in cases]
    client, server = [0] * len(cases), [0] * len(cases)
    for _ in range(blocks):
        for at, case in enumerate(cases):
            call, items = case.block(operations)
            client_before, server_before = time.process_time_ns(), case.server.nanoseconds()
            for item in items:
                begun = time.perf_counter_ns()
                call(item)
                times[at].append((time.perf_counter_ns() - begun) / 1000)
            client[at] += time.process_time_ns() - client_before
            server[at] += case.server.nanoseconds() - server_before
    total = 1000 * blocks * operations
    return [Sample(times[at], client[at] / total, server[at] / total) for at in range(len(cases))]


def _named(name: str, where: str) -> str:
    return f"{name}, {where}" if where == TOGETHER else name


def _result(where: str, mode: str, case: Case, samples: list[Sample], floors: list[Sample]) -> Result:
    everything = [taken for sample in samples for taken in sample.times]
    average, client = mean(everything), median(sample.client for sample in samples)
    facts: dict[str, Any] = {
        "mean_us": average,
        "p95_us": quantiles(everything, n=20)[-1],
        "operations": len(everything),
        "client_cpu_us": client,
        "placement": where,
    }
    compared = case.name != case.floor
    if compared:
        facts["client_cpu_ratio"] = median_ratio([s.client for s in samples], [s.client for s in floors])
    if case.server.known:
        facts["server_cpu_us"] = server = median(sample.server for sample in samples)
        # What neither side computes: the disk, the way between them, and other people's work.
        facts["waiting_us"] = max(average - client - server, 0.0)
        if compared:
            facts["server_cpu_ratio"] = median_ratio([s.server for s in samples], [s.server for s in floors])
    return Result(
        group="core",
        name=_named(case.name, where),
        synchronous_commit=mode,
        unit="us",
        figure=median(sample.wall for sample in samples),
        floor=_named(case.floor, where) if compared else None,
        ratio=median_ratio([s.wall for s in samples], [s.wall for s in floors]) if compared else None,
        target=case.target,
        facts=facts,
    )
