"""What `run` adds to prepare and commit by hand, and whether equal calls from several processes are one execution."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.actions import RESULT, fresh, open_fence, request
from benchmarks.equal import race
from benchmarks.results import MODES, Result, Target, median_ratio
from effectfence_pg import AsyncFence, FenceConfig, Fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from benchmarks.databases import Bench
    from effectfence_pg import Fence

BY_HAND: Final = "by hand: prepare, commit"
BY_HAND_ASYNC: Final = "by hand, awaited: prepare, commit"


def measure(bench: Bench) -> Generator[Result]:
    """By hand and by run in turn, block by block; then the rounds of equal calls."""
    for mode in MODES:
        bench.say(f"run: synchronous_commit {mode}")
        yield from _sync(bench, mode)
        yield from asyncio.run(_async(bench, mode))
    for kind in ("sync", "async"):
        bench.say(f"run: {bench.scale.equal_rounds} rounds of 20 equal calls, {kind}")
        counted = race(bench.url.render_as_string(hide_password=False), "equal", kind, rounds=bench.scale.equal_rounds)
        yield Result(
            group="run",
            name=f"20 equal calls from 4 processes, {kind}: rounds with one execution",
            synchronous_commit=MODES[0],
            unit="rounds",
            figure=float(counted.kept),
            target=Target("=", float(counted.rounds)),
            facts={"rounds": counted.rounds, "executions": counted.executions},
        )


def _sync(bench: Bench, mode: str) -> list[Result]:
    with open_fence(bench.url_for(mode), connections=1) as fence:
        fenced = fence.bind(_charge, intent="{intent}")

        def decorated(intent: str) -> None:
            fenced(intent)

        return _compared(
            bench, mode, BY_HAND, {BY_HAND: lambda i: fresh(fence, request(i)), "run": _run(fence), "fenced": decorated}
        )


def _run(fence: Fence) -> Callable[[str], object]:
    return lambda intent: fence.run(request(intent), lambda: RESULT)


def _charge(intent: str) -> dict[str, str]:
    del intent
    return RESULT


def _compared(bench: Bench, mode: str, floor: str, cases: dict[str, Callable[[str], object]]) -> list[Result]:
    scale = bench.scale
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for name, call in cases.items():
        for intent in bench.fresh_names(f"warm-{mode}-{name}", scale.warm_up_operations):
            call(intent)
    for _ in range(scale.repetitions):
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(scale.blocks):
            for name, call in cases.items():
                for intent in bench.fresh_names(f"{name}-{mode}", scale.block_operations):
                    begun = time.perf_counter_ns()
                    call(intent)
                    times[name].append((time.perf_counter_ns() - begun) / 1000)
        for name, taken in times.items():
            samples[name].append(median(taken))
    return [_result(mode, name, floor, samples) for name in cases]


def _result(mode: str, name: str, floor: str, samples: dict[str, list[float]]) -> Result:
    compared = name != floor
    return Result(
        group="run",
        name=name,
        synchronous_commit=mode,
        unit="us",
        figure=median(samples[name]),
        floor=floor if compared else None,
        ratio=median_ratio(samples[name], samples[floor]) if compared else None,
        target=Target("<=", 1.3) if compared else None,
    )


async def _async(bench: Bench, mode: str) -> list[Result]:
    config = FenceConfig(pool_size=1, max_overflow=0)
    async with AsyncFence(bench.url_for(mode), namespace="bench", config=config) as fence:
        await fence.current("warm")

        async def by_hand(intent: str) -> None:
            verdict = await fence.prepare(request(intent))
            if isinstance(verdict, Fresh):
                await fence.commit(verdict.prepared, RESULT)

        async def tool() -> dict[str, str]:
            return RESULT

        async def run(intent: str) -> None:
            await fence.run(request(intent), tool)

        cases = {BY_HAND_ASYNC: by_hand, "run, awaited": run}
        scale = bench.scale
        samples: dict[str, list[float]] = {name: [] for name in cases}
        for repetition in range(scale.repetitions + 1):
            for name, call in cases.items():
                times: list[float] = []
                for intent in bench.fresh_names(f"{name}-{mode}", scale.block_operations * scale.blocks):
                    begun = time.perf_counter_ns()
                    await call(intent)
                    times.append((time.perf_counter_ns() - begun) / 1000)
                if repetition:
                    samples[name].append(median(times))
        return [_result(mode, name, BY_HAND_ASYNC, samples) for name in cases]
