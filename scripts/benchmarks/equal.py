"""Equal calls at the same moment from several processes, sync and async: how many rounds had exactly one execution."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import BenchFailedError
from effectfence_pg import AsyncFence, EffectRequest, Fence, FenceConfig

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

WAIT_SECONDS = 60.0
LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Plan:
    """What every process does: `calls` equal calls in each of so many rounds."""

    url: str
    namespace: str
    kind: str
    ledger: str
    calls: int
    rounds: int


@dataclass(frozen=True)
class Counted:
    """What came of the rounds: those with one execution in which every caller got its result, and all executions."""

    kept: int
    rounds: int
    executions: int


def race(url: str, namespace: str, kind: str, *, rounds: int, processes: int = 4, calls: int = 20) -> Counted:
    """Let so many processes make so many equal calls together, round after round.

    Raises:
        BenchFailedError: A process did not end well, or a caller got another answer than the others.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="effectfence-equal-") as directory:
        ledger = Path(directory, "ledger")
        plan = Plan(url, namespace, kind, str(ledger), calls // processes, rounds)
        barrier, answers = context.Barrier(processes), context.SimpleQueue()
        workers = [context.Process(target=work, args=(plan, barrier, answers), daemon=True) for _ in range(processes)]
        for worker in workers:
            worker.start()
        try:
            # Read before joining: a process does not end while its answers are not taken.
            told = [answers.get() for _ in workers]
        finally:
            for worker in workers:
                worker.join(LIMIT_SECONDS)
                if worker.is_alive():
                    worker.terminate()
        executed = Counter(ledger.read_text(encoding="utf-8").split())
    results: dict[int, set[str]] = {number: set() for number in range(rounds)}
    for lines in told:
        for number, answer in lines:
            results[number].add(answer)
    kept = sum(executed[str(number)] == 1 and len(results[number]) == 1 for number in range(rounds))
    strange = sorted(answer for found in results.values() for answer in found if not answer.startswith("done by"))
    if strange:
        raise BenchFailedError(f"a caller was told: {strange[0]}")
    return Counted(kept, rounds, executed.total())


def work(plan: Plan, barrier: Barrier, answers: Any) -> None:
    """One process: its threads or tasks begin every round together with those of the others."""
    told: list[tuple[int, str]] = []
    try:
        if plan.kind == "async":
            asyncio.run(_tasks(plan, barrier, told))
        else:
            _threads(plan, barrier, told)
    except Exception as error:  # noqa: BLE001 (whatever it is, the run has to say so)
        barrier.abort()
        told.append((0, f"{type(error).__name__}: {error}"))
    answers.put(told)


def _request(plan: Plan, number: int) -> EffectRequest:
    return EffectRequest(intent=f"equal-{plan.kind}-{number}", domain=f"equal-{number}", tool="charge", agent="bench")


def _happen(plan: Plan, number: int) -> str:
    """The effect: a line in a file that the fence knows nothing of."""
    line = f"{number}\n".encode()
    descriptor = os.open(plan.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    return f"done by {os.getpid()}"


def _config(plan: Plan) -> FenceConfig:
    return FenceConfig(pool_size=plan.calls, max_overflow=0)


def _threads(plan: Plan, barrier: Barrier, told: list[tuple[int, str]]) -> None:
    with Fence(plan.url, namespace=plan.namespace, config=_config(plan)) as fence:
        fence.current("warm")

        def call(number: int) -> None:
            try:
                ran = fence.run(_request(plan, number), lambda: _happen(plan, number), wait_seconds=WAIT_SECONDS)
                told.append((number, ran.result))
            except Exception as error:  # noqa: BLE001
                told.append((number, f"{type(error).__name__}: {error}"))

        for number in range(plan.rounds):
            threads = [threading.Thread(target=call, args=(number,)) for _ in range(plan.calls)]
            barrier.wait(LIMIT_SECONDS)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


async def _tasks(plan: Plan, barrier: Barrier, told: list[tuple[int, str]]) -> None:
    async with AsyncFence(plan.url, namespace=plan.namespace, config=_config(plan)) as fence:
        await fence.current("warm")

        async def call(number: int) -> None:
            async def tool() -> str:
                return _happen(plan, number)

            try:
                ran = await fence.run(_request(plan, number), tool, wait_seconds=WAIT_SECONDS)
                told.append((number, ran.result))
            except Exception as error:  # noqa: BLE001
                told.append((number, f"{type(error).__name__}: {error}"))

        for number in range(plan.rounds):
            await asyncio.to_thread(barrier.wait, LIMIT_SECONDS)
            await asyncio.gather(*(call(number) for _ in range(plan.calls)))
