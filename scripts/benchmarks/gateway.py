"""What a gateway adds to a call, beside the same proxy without the fence, and whether identical calls are one execution."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from mcp import Client, StdioServerParameters

from benchmarks.actions import RESULT, request
from benchmarks.results import MODES, BenchFailedError, Result, Target, median_ratio
from effectfence_pg import AsyncFence, FenceConfig, Fresh
from effectfence_pg.gateway.charges import charged
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from sqlalchemy import URL

    from benchmarks.databases import Bench

ROOT: Final = Path(__file__).parents[2]
BY_HAND: Final = "by hand, awaited: prepare, commit"
PROXY: Final = "the proxy without the fence"
FRESH: Final = "a fresh call"
REPLAY: Final = "a replayed call"
ADDED: Final = "time added to a fresh call"
CALLS: Final = 12
UNFENCED: Final = '[[tool]]\nmatch = "*"\naction = "pass"\n'


def measure(bench: Bench) -> Generator[Result]:
    """The cost of a call in each mode; then the rounds of identical calls."""
    with tempfile.TemporaryDirectory(prefix="effectfence-bench-") as folder:
        for mode in MODES:
            bench.say(f"gateway: synchronous_commit {mode}")
            yield from asyncio.run(_cost(bench, mode, Path(folder)))
        bench.say(f"gateway: {bench.scale.gateway_rounds} rounds of {CALLS} identical calls")
        yield from asyncio.run(_rounds(bench, Path(folder)))


async def _cost(bench: Bench, mode: str, folder: Path) -> list[Result]:
    config = FenceConfig(pool_size=1, max_overflow=0)
    url, books = bench.url_for(mode), folder / f"cost-{mode}"
    async with (
        AsyncFence(url, namespace="bench", config=config) as fence,
        _gateway(url, books, "pass", UNFENCED) as proxy,
        _gateway(url, books, "fence") as gateway,
    ):

        async def by_hand(intent: str) -> None:
            verdict = await fence.prepare(request(intent))
            if isinstance(verdict, Fresh):
                await fence.commit(verdict.prepared, RESULT)

        async def replayed(_: str) -> None:
            await _charge(gateway, f"warm-{FRESH}")

        cases: dict[str, Callable[[str], Awaitable[None]]] = {
            BY_HAND: by_hand,
            PROXY: lambda intent: _charge(proxy, intent),
            FRESH: lambda intent: _charge(gateway, intent),
            REPLAY: replayed,
        }
        await _charge(gateway, f"warm-{FRESH}")
        samples: dict[str, list[float]] = {name: [] for name in [*cases, ADDED]}
        for repetition in range(bench.scale.repetitions + 1):
            taken = await _taken(bench, mode, cases)
            if repetition:  # the first one warms up
                for name, times in taken.items():
                    samples[name].append(median(times))
                samples[ADDED].append(max(median(taken[FRESH]) - median(taken[PROXY]), 0.0))
    return [
        _result(mode, BY_HAND, samples),
        _result(mode, PROXY, samples),
        _result(mode, FRESH, samples, PROXY),
        _result(mode, REPLAY, samples, PROXY),
        _result(mode, ADDED, samples, BY_HAND, Target("<=", 1.5)),
    ]


async def _taken(bench: Bench, mode: str, cases: dict[str, Callable[[str], Awaitable[None]]]) -> dict[str, list[float]]:
    """Call by call in turn, so that each finds its connection, its caches and the machine as another one left them."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for intent in bench.fresh_names(f"gateway-{mode}", bench.scale.blocks * bench.scale.block_operations):
        for name, call in cases.items():
            begun = time.perf_counter_ns()
            await call(f"{intent}-{name}")
            times[name].append((time.perf_counter_ns() - begun) / 1000)
    return times


def _result(
    mode: str, name: str, samples: dict[str, list[float]], floor: str | None = None, target: Target | None = None
) -> Result:
    return Result(
        group="gateway",
        name=name,
        synchronous_commit=mode,
        unit="us",
        figure=median(samples[name]),
        floor=floor,
        ratio=None if floor is None else median_ratio(samples[name], samples[floor]),
        target=target,
    )


async def _rounds(bench: Bench, folder: Path) -> list[Result]:
    """As many rounds through one gateway process, two and four; executions are lines in the charge server's own books."""
    results: list[Result] = []
    books, url = folder / "rounds", bench.url_for(MODES[0])
    for through in bench.scale.gateways:
        gateways, kept = _Gateways(books, through), 0
        async with asyncio.TaskGroup() as group:
            for number in range(through):
                group.create_task(gateways.attend(url, number))
            await gateways.ready.wait()
            for order in bench.fresh_names(f"round-{through}", bench.scale.gateway_rounds):
                await asyncio.gather(*(_charge(gateways.clients[at % through], order) for at in range(CALLS)))
                kept += len(charged(books, order)) == 1
            gateways.done.set()
        results.append(
            Result(
                group="gateway",
                name=f"{CALLS} identical calls through {through} gateways: rounds with one execution",
                synchronous_commit=MODES[0],
                unit="rounds",
                figure=float(kept),
                target=Target("=", float(bench.scale.gateway_rounds)),
                facts={"rounds": bench.scale.gateway_rounds},
            )
        )
    return results


class _Gateways:
    """Clients of so many gateway processes; each is entered and left in a task of its own."""

    def __init__(self, books: Path, wanted: int) -> None:
        self._books = books
        self._wanted = wanted
        self.clients: list[Client] = []
        self.ready, self.done = asyncio.Event(), asyncio.Event()

    async def attend(self, url: URL, number: int) -> None:
        async with _gateway(url, self._books, f"rounds-{self._wanted}-{number}") as client:
            self.clients.append(client)
            if len(self.clients) == self._wanted:
                self.ready.set()
            await self.done.wait()


@asynccontextmanager
async def _gateway(url: URL, books: Path, name: str, rules: str = "") -> AsyncGenerator[Client]:
    policy = books.with_name(f"{name}-{books.name}.toml")
    policy.write_text(f'namespace = "bench"\n{rules}', encoding="utf-8")
    provider = [sys.executable, "-m", "effectfence_pg.gateway.charges", str(books)]
    start = StdioServerParameters(
        command=sys.executable,
        args=["-m", "effectfence_pg", "gateway", "--policy", str(policy), "--", *provider],
        env={**os.environ, DATABASE_VARIABLE: url.render_as_string(hide_password=False)},
        cwd=ROOT,
    )
    async with Client(start) as client:
        yield client


async def _charge(client: Client, order: str) -> None:
    answer: Any = await client.call_tool("charge", {"order_id": order, "cents": 4900})
    if answer.is_error:
        raise BenchFailedError(f"the charge of {order} was refused: {answer.structured_content}")
