"""F17: wherever a caller is cancelled, nothing is lost, nothing is guessed, and no connection stays taken."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import AsyncFence, FenceConfig, Fresh, IntentFailed, IntentInFlight, Replay
from effectfence_pg.transactions import Executor
from tests.support.proxy import Cut, Proxy
from tests.support.until import auntil
from tests.support.witness import Witness
from tests.support.world import World

LIMIT = 30.0
ONE = FenceConfig(pool_size=1, max_overflow=0)


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


class Gate:
    """Holds up the next turn of the database, so that a test can act in the middle of it."""

    def __init__(self, proxy: Proxy) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.armed = False
        proxy.before_turn = self.pass_through

    def pass_through(self) -> None:
        if self.armed:
            self.armed = False
            self.reached.set()
            assert self.open.wait(LIMIT)

    async def wait(self) -> None:
        await auntil(self.reached.is_set)


def on(proxy: Proxy, world: World, act: Callable[[AsyncFence], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with AsyncFence(proxy.url, namespace=world.namespace, config=ONE) as fence:
            await fence.current("warm")
            answer = await act(fence)
            # The only connection of the pool is there again.
            assert await asyncio.wait_for(fence.current("still there"), LIMIT) == 0
            return answer

    return asyncio.run(main())


def test_f17_cancelled_before_the_claim_leaves_nothing(world: World, proxy: Proxy, ledger: Witness) -> None:
    async def act(fence: AsyncFence) -> None:
        async def tool() -> None:
            ledger.happened("charge:1")

        task = asyncio.create_task(fence.run(world.request(), tool))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on(proxy, world, act)
    assert all(found == [] for found in world.rows().values())
    assert ledger.count() == 0


@pytest.mark.parametrize("verb", ["run", "prepare"])
def test_f17_cancelled_during_the_claim_gives_it_back(world: World, proxy: Proxy, ledger: Witness, verb: str) -> None:
    gate = Gate(proxy)

    async def act(fence: AsyncFence) -> None:
        async def tool() -> None:
            ledger.happened("charge:1")

        gate.armed = True
        task = asyncio.ensure_future(
            fence.run(world.request(), tool) if verb == "run" else fence.prepare(world.request())
        )
        await gate.wait()
        task.cancel()
        # Promptly: the database has not answered yet.
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()

    on(proxy, world, act)
    assert ledger.count() == 0
    # It is proven that nothing happened, for the tool was not called: the next attempt runs.
    assert world.state() == "released"
    assert isinstance(world.fence.prepare(world.request()), Fresh)


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout"])
def test_f17_cancelled_during_the_tool_leaves_the_outcome_unknown(
    world: World, proxy: Proxy, ledger: Witness, how: str
) -> None:
    async def act(fence: AsyncFence) -> None:
        started = asyncio.Event()

        async def tool() -> None:
            ledger.happened("charge:1")
            started.set()
            await asyncio.sleep(LIMIT)

        task = asyncio.create_task(fence.run(world.request(), tool))
        await started.wait()
        if how == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.01)
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await task

    on(proxy, world, act)
    assert ledger.count() == 1
    with pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request())
    assert refused.value.reason == "asyncio.exceptions.CancelledError [cancelled]: outcome unknown"


def test_f17_a_cancelled_scope_of_anyio_leaves_the_outcome_unknown(world: World, proxy: Proxy, ledger: Witness) -> None:
    """A scope cancels again and again, at every await."""
    anyio = pytest.importorskip("anyio")

    async def act(fence: AsyncFence) -> None:
        with anyio.CancelScope() as scope:

            async def tool() -> None:
                ledger.happened("charge:1")
                scope.cancel()
                await asyncio.sleep(LIMIT)

            await fence.run(world.request(), tool)
        assert scope.cancelled_caught

    on(proxy, world, act)
    assert (world.state(), ledger.count()) == ("failed", 1)


def test_f17_a_cancelled_caller_does_not_wait_for_the_record(world: World, proxy: Proxy) -> None:
    gate = Gate(proxy)

    async def act(fence: AsyncFence) -> None:
        started = asyncio.Event()

        async def tool() -> None:
            started.set()
            await asyncio.sleep(LIMIT)

        task = asyncio.create_task(fence.run(world.request(), tool))
        await started.wait()
        gate.armed = True
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not gate.open.is_set()
        await gate.wait()
        gate.open.set()

    on(proxy, world, act)
    assert world.state() == "failed"


@pytest.mark.parametrize("verb", ["run", "commit"])
def test_f17_cancelled_during_the_record_is_completed_and_replays(
    world: World, proxy: Proxy, ledger: Witness, verb: str
) -> None:
    gate = Gate(proxy)

    async def act(fence: AsyncFence) -> None:
        async def tool() -> str:
            ledger.happened("charge:1")
            gate.armed = True
            return "done"

        if verb == "run":
            task = asyncio.ensure_future(fence.run(world.request(), tool))
        else:
            verdict = await fence.prepare(world.request())
            assert isinstance(verdict, Fresh)
            task = asyncio.ensure_future(fence.commit(verdict.prepared, await tool()))
        await gate.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()

    on(proxy, world, act)
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)
    assert replay.certificate.result == "done"
    assert ledger.count() == 1


def test_f17_the_end_of_the_event_loop_does_not_take_the_record_with_it(
    world: World, proxy: Proxy, ledger: Witness
) -> None:
    """asyncio.run cancels every task when it ends, those of the fence included; here the record is being tried again."""
    fence = AsyncFence(proxy.url, namespace=world.namespace, config=ONE)
    trying_again, cancelled = threading.Event(), threading.Event()

    def meanwhile() -> None:
        if proxy.pending == 2:
            trying_again.set()
            assert cancelled.wait(LIMIT)

    async def main() -> None:
        await fence.current("warm")

        async def tool() -> str:
            ledger.happened("charge:1")
            proxy.cut(*[Cut.BEFORE_COMMIT] * 4, meanwhile=meanwhile)
            return "done"

        task = asyncio.create_task(fence.run(world.request(), tool))
        await auntil(trying_again.is_set)
        task.cancel()
        await asyncio.wait({task})
        cancelled.set()

    asyncio.run(main())
    asyncio.run(fence.aclose())
    assert isinstance(world.fence.prepare(world.request()), Replay)
    assert (proxy.pending, ledger.count()) == (0, 1)


def test_f17_a_cancelled_waiter_stops_polling_and_the_next_one_goes_on(world: World, proxy: Proxy) -> None:
    prepared = world.admit()

    async def act(fence: AsyncFence) -> Any:
        first = asyncio.create_task(fence.prepare(world.request(), wait_seconds=LIMIT))
        await auntil(lambda: fence._memory.room.waits(world.request().intent_key) == 1)
        second = asyncio.create_task(fence.prepare(world.request(), wait_seconds=LIMIT))
        await auntil(lambda: fence._memory.room.waits(world.request().intent_key) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await auntil(lambda: fence._memory.room.waits(world.request().intent_key) == 1)
        await asyncio.to_thread(world.fence.commit, prepared, "done")
        return await second

    assert isinstance(on(proxy, world, act), Replay)
    assert world.history()[0][0] == 1
    assert len(world.rows()["effects"]) == 1


INTERRUPTED = """
import os, signal, sys, threading
from effectfence_pg import EffectRequest, Fence
from tests.support.witness import Witness
url, namespace, ledger, how = sys.argv[1:]

def stop(*_):
    raise SystemExit(7)

signal.signal(signal.SIGTERM, stop)
fence = Fence(url, namespace=namespace)
request = EffectRequest(intent="charge:1", domain="of:charge:1", tool="charge", agent="agent-a", args={"cents": 4900})

def tool():
    Witness(ledger).happened("charge:1")
    if how == "tool":
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(30)
    return "done"

if how == "record":
    # The signal comes when the tool has returned, and the database does not know it yet.
    from effectfence_pg.transactions import Executor
    called = []
    original = Executor.__call__
    def execute(self, operation):
        if operation.name == "commit" and not called:
            called.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, operation)
    Executor.__call__ = execute
try:
    fence.run(request, tool)
finally:
    fence.close()
"""


@pytest.mark.parametrize(("how", "state"), [("tool", "failed"), ("record", "committed")])
def test_f17_sigterm_in_a_process_that_handles_it(world: World, ledger: Witness, how: str, state: str) -> None:
    url = world.engine.url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, url, world.namespace, str(ledger.path), how],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 7, done.stderr
    assert (world.state(), ledger.count()) == (state, 1)


def test_f17_an_interrupt_during_the_claim_gives_it_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a signal handler raises may come when the database has admitted, and the answer is not read yet."""
    original, interrupts = Executor.__call__, [1]

    def execute(self: Executor, operation: Any) -> Any:
        row = original(self, operation)
        if interrupts and operation.name == "prepare":
            interrupts.pop()
            raise KeyboardInterrupt
        return row

    monkeypatch.setattr(Executor, "__call__", execute)
    with pytest.raises(KeyboardInterrupt):
        world.fence.run(world.request(), lambda: pytest.fail("it ran"))
    assert world.state() == "released"


def test_f17_sigkill_leaves_the_outcome_unknown_once_the_lease_has_run_out(world: World, ledger: Witness) -> None:
    url = world.engine.url.render_as_string(hide_password=False)
    killed = INTERRUPTED.replace("os.kill(os.getpid(), signal.SIGTERM)", "os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run(
        [sys.executable, "-c", killed, url, world.namespace, str(ledger.path), "tool"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(IntentInFlight):
        world.fence.run(world.request(), lambda: ledger.happened("charge:1"))
    world.expire()
    with pytest.raises(IntentFailed):
        world.fence.run(world.request(), lambda: ledger.happened("charge:1"))
    assert ledger.count() == 1
