"""F18: equal calls at the same moment. One executes; who waits gets its outcome, in one poll for all of a process."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import AsyncFence, Fence, FenceConfig, FenceError, Fresh, IntentFailed, IntentInFlight, Replay
from effectfence_pg.steps import Pause
from effectfence_pg.transactions import Executor
from effectfence_pg.values import key_of
from effectfence_pg.waiting.room import Seat, WaitingRoom
from tests.support.until import auntil, until
from tests.support.witness import Witness
from tests.support.world import World

SCRIPTS = Path(__file__).parents[2] / "scripts"
PATIENCE = 30.0
WAITERS = 10
KEY = key_of("charge:1")


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_f18_20_equal_calls_from_4_processes_are_one_execution(
    database_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A few rounds of what `scripts/bench run` does 200 times; every caller gets the one result."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    counted = importlib.import_module("benchmarks.equal").race(database_url, namespace, kind, rounds=3)
    assert (counted.kept, counted.executions) == (3, 3)


def room(fence: Any) -> WaitingRoom:
    return fence._memory.room


class Waiting:
    """Ten threads that wait for one intent on one fence, with every execution counted."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        config = FenceConfig(poll_initial_seconds=0.01, poll_max_seconds=0.05)
        self.fence = Fence(world.engine, namespace=world.namespace, config=config)
        self.fence.current("warm")
        self.executed, self.pool = 0, ThreadPoolExecutor(WAITERS)
        original, lock = Executor.__call__, threading.Lock()

        def execute(executor: Executor, operation: Any) -> Any:
            if operation.name == "prepare" and executor is self.fence._execute:
                with lock:
                    self.executed += 1
            return original(executor, operation)

        monkeypatch.setattr(Executor, "__call__", execute)
        self.answers = [self.pool.submit(self._wait, world) for _ in range(WAITERS)]
        until(lambda: room(self.fence).waits(KEY) == WAITERS)

    def _wait(self, world: World) -> Any:
        try:
            return self.fence.prepare(world.request(), wait_seconds=PATIENCE)
        except FenceError as error:
            return error

    def results(self) -> list[Any]:
        answers = [answer.result(PATIENCE) for answer in self.answers]
        self.pool.shutdown()
        assert room(self.fence).seats == {}
        return answers


def test_f18_ten_waiters_of_one_process_cost_one_poll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = world.admit()
    polls: list[float] = []
    waiting = Waiting(world, monkeypatch)
    first = waiting.executed
    pausing = threading.Event()

    def sleep(_seconds: float) -> None:
        polls.append(0)
        pausing.wait(0.01)

    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", sleep)
    until(lambda: len(polls) >= 5)
    # The one who polls asks once after each of its pauses; the others ask nothing.
    assert waiting.executed - first <= len(polls) + 1
    certificate = world.fence.commit(prepared, {"receipt": 7})
    answers = waiting.results()
    assert [type(answer) for answer in answers] == [Replay] * WAITERS
    assert {answer.certificate.hash for answer in answers} == {certificate.hash}  # type: ignore[union-attr]
    assert waiting.executed - first <= len(polls) + 1


def test_f18_the_holder_dies_while_others_wait_and_none_of_them_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.admit()
    waiting = Waiting(world, monkeypatch)
    world.expire()
    answers = waiting.results()
    assert [type(answer) for answer in answers] == [IntentFailed] * WAITERS
    assert {answer.reason for answer in answers} == {"lease expired, outcome unknown"}


def test_f18_when_nothing_had_happened_one_of_the_waiters_runs_and_the_others_wait_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = world.admit()
    waiting = Waiting(world, monkeypatch)
    world.fence.abort(prepared, "never sent", effect="none")
    until(lambda: any(answer.done() for answer in waiting.answers))
    (fresh,) = [answer.result() for answer in waiting.answers if answer.done()]
    assert isinstance(fresh, Fresh)
    until(lambda: room(waiting.fence).waits(KEY) == WAITERS - 1)
    world.fence.commit(fresh.prepared, "done")
    kinds = [type(answer) for answer in waiting.results()]
    assert sorted(kind.__name__ for kind in kinds) == ["Fresh"] + ["Replay"] * (WAITERS - 1)


def test_f18_a_wait_that_times_out_says_in_flight_and_the_next_one_leads(world: World) -> None:
    prepared = world.admit()
    with ThreadPoolExecutor(2) as pool:

        def impatient() -> None:
            with pytest.raises(IntentInFlight):
                world.fence.prepare(world.request(), wait_seconds=0.3)

        short = pool.submit(impatient)
        until(lambda: room(world.fence).waits(KEY) == 1)
        long = pool.submit(world.fence.prepare, world.request(), wait_seconds=PATIENCE)
        short.result(PATIENCE)
        until(lambda: room(world.fence).waits(KEY) == 1)
        world.fence.commit(prepared, "done")
        assert isinstance(long.result(PATIENCE), Replay)


def test_f18_tasks_that_wait_take_no_connection_and_no_poll_of_their_own(world: World, ledger: Witness) -> None:
    async def main() -> list[Any]:
        url = world.engine.url.render_as_string(hide_password=False)
        config = FenceConfig(pool_size=1, max_overflow=0, retry_deadline_seconds=5.0)
        async with AsyncFence(url, namespace=world.namespace, config=config) as fence:
            finish = asyncio.Event()

            async def tool() -> str:
                ledger.happened("charge:1")
                await finish.wait()
                return "done"

            tasks = [asyncio.create_task(fence.run(world.request(), tool, wait_seconds=PATIENCE)) for _ in range(50)]
            await auntil(lambda: room(fence).waits(KEY) == 49)
            finish.set()
            return await asyncio.gather(*tasks)

    answers = asyncio.run(main())
    assert [answer.replayed for answer in answers].count(False) == 1
    assert {answer.result for answer in answers} == {"done"}
    assert ledger.count() == 1


def test_coroutines_that_wait_on_a_blocking_fence_leave_its_threads_to_the_holder(
    world: World, ledger: Witness
) -> None:
    """More waiters than asyncio has worker threads: the holder's commit needs one."""

    async def main() -> list[Any]:
        finish = asyncio.Event()

        async def tool() -> str:
            ledger.happened("charge:1")
            await finish.wait()
            return "done"

        tasks = [asyncio.create_task(world.fence.arun(world.request(), tool, wait_seconds=PATIENCE)) for _ in range(60)]
        await auntil(lambda: room(world.fence).waits(KEY) == 59)
        finish.set()
        return await asyncio.gather(*tasks)

    assert {answer.result for answer in asyncio.run(main())} == {"done"}
    assert ledger.count() == 1


def seated(room: WaitingRoom, count: int) -> list[Seat]:
    seats = [Seat(room, KEY) for _ in range(count)]
    for seat in seats:
        seat.take()
    return seats


def bells(seats: list[Seat]) -> list[int]:
    rung: list[int] = []
    for number, seat in enumerate(seats):
        seat.arm(lambda number=number: rung.append(number))
    return rung


def test_the_next_one_leads_when_the_leader_gives_up() -> None:
    seats = seated(WaitingRoom(), 3)
    rung = bells(seats)
    seats[0].leave(None, decided=False)
    assert (rung, [seat.leads for seat in seats]) == ([1], [False, True, False])


def test_an_answer_of_the_leader_wakes_everybody() -> None:
    room = WaitingRoom()
    seats = seated(room, 3)
    rung = bells(seats)
    seats[0].leave("the certificate", decided=True)
    assert (rung, [seat.answer for seat in seats[1:]]) == ([1, 2], ["the certificate"] * 2)
    assert room.seats == {}


def test_a_waiter_that_gives_up_wakes_nobody() -> None:
    seats = seated(WaitingRoom(), 3)
    rung = bells(seats)
    seats[1].leave(None, decided=False)
    assert (rung, seats[0].leads) == ([], True)


def test_a_bell_that_rang_before_anybody_listened_is_heard() -> None:
    room = WaitingRoom()
    (seat,) = seated(room, 1)
    room.ring(KEY)
    heard: Callable[[], object] = lambda: pytest.fail("too late")  # noqa: E731
    assert not seat.arm(heard)
    assert seat.arm(lambda: None)
    assert Pause(1.0).seconds == 1.0
