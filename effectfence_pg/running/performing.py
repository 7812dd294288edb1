"""What takes the steps of a run: in this thread, or in an event loop, where a caller may be cancelled at any await."""

from __future__ import annotations

import asyncio
import contextlib
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from effectfence_pg.running.current import Entered
from effectfence_pg.running.runs import Asked, Call, Claim, Running, Settle
from effectfence_pg.unfinished import finished
from effectfence_pg.values import Fresh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from effectfence_pg.steps import Pause, Steps

T = TypeVar("T")

INSISTENCE = 3
"""How often what has to be recorded is taken up again when its task is cancelled, as at the end of an event loop."""


def perform(running: Running[T], drive: Callable[[Steps[Any]], Any]) -> T:
    """Run it here. An exception that a signal handler raises may come anywhere: what has run is put on record all the same."""
    try:
        asked = next(running)
        while True:
            try:
                answer = _answer(asked, drive)
            except BaseException as error:  # noqa: BLE001 (every outcome goes back to the run, which decides)
                asked = running.throw(error)
            else:
                asked = running.send(answer)
    except StopIteration as done:
        return done.value


def _answer(asked: Asked, drive: Callable[[Steps[Any]], Any]) -> Any:
    if isinstance(asked, Call):
        with Entered(asked.effect) as effect:
            return finished(asked.function(effect), intent=effect.intent)
    try:
        return drive(asked.make())
    except Exception:
        raise
    except BaseException:
        if isinstance(asked, Settle):
            drive(asked.make())
        elif isinstance(asked, Claim):
            # Whether it was admitted is not known; the same admission, asked again, recognises itself.
            with contextlib.suppress(Exception):
                verdict = drive(asked.make())
                if isinstance(verdict, Fresh):
                    drive(asked.release(verdict.prepared))
        raise


class Background:
    """Tasks that go on when the one that started them is cancelled. Each is referred to until it is done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Whoever waited for it has seen its error; nobody else is told that it was not looked at.
            task.exception()

    async def finish(self) -> None:
        """Wait for all of them."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


class Abandonable:
    """Pauses of a claim: when its caller is gone, it does not go on waiting for others."""

    def __init__(self, pause: Callable[[Pause], Awaitable[None]]) -> None:
        self._pause = pause
        self._gone = asyncio.Event()

    def abandon(self) -> None:
        """The caller is gone."""
        self._gone.set()

    async def __call__(self, asked: Pause) -> None:
        """Pause, unless nobody waits any more."""
        pausing = asyncio.ensure_future(self._pause(asked))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({pausing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pausing.cancel()
        if self._gone.is_set():
            raise asyncio.CancelledError


class Performer:
    """Runs in an event loop.

    Args:
        drive: Takes steps, with these pauses.
        pause: The pauses of the fence.
    """

    def __init__(
        self,
        drive: Callable[[Steps[Any], Callable[[Pause], Awaitable[None]]], Awaitable[Any]],
        pause: Callable[[Pause], Awaitable[None]],
    ) -> None:
        self._drive = drive
        self._pause = pause
        self.background = Background()

    async def perform(self, running: Running[T]) -> T:
        """Run it; a cancelled caller is let go at once, and what has to be recorded is recorded behind its back."""
        try:
            asked = next(running)
            while True:
                try:
                    answer = await self._answer(asked)
                except GeneratorExit:
                    running.close()
                    raise
                except BaseException as error:  # noqa: BLE001
                    asked = running.throw(error)
                else:
                    asked = running.send(answer)
        except StopIteration as done:
            return done.value

    async def _answer(self, asked: Asked) -> Any:
        if isinstance(asked, Call):
            with Entered(asked.effect) as effect:
                answer = asked.function(effect)
                while isawaitable(answer):
                    answer = await answer
                return finished(answer, intent=effect.intent)
        if isinstance(asked, Claim):
            return await self.claim(asked)
        if isinstance(asked, Settle):
            task = self.background.start(self._insist(asked.make))
            return await asyncio.shield(task) if asked.waits else None
        return await self._drive(asked.make(), self._pause)

    async def settle(self, make: Callable[[], Steps[T]]) -> T:
        """Take these steps to their end, whatever becomes of the caller."""
        return await asyncio.shield(self.background.start(self._insist(make)))

    async def claim(self, asked: Claim) -> Any:
        """Take the steps of an admission; what was admitted for a caller that is gone is given back."""
        pause = Abandonable(self._pause)
        task = self.background.start(self._taken(asked, pause))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            pause.abandon()
            self.background.start(self._give_back(task, asked))
            raise

    async def _taken(self, asked: Claim, pause: Abandonable) -> Any:
        return await self._drive(asked.make(), pause)

    async def _give_back(self, task: asyncio.Task[Any], asked: Claim) -> None:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            verdict = await asyncio.shield(task)
            if isinstance(verdict, Fresh):
                await self._insist(lambda: asked.release(verdict.prepared))

    async def _insist(self, make: Callable[[], Steps[T]]) -> T:
        for _ in range(INSISTENCE):
            try:
                return await self._drive(make(), self._pause)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
        return await self._drive(make(), self._pause)
