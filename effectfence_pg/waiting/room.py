"""Who waits for which intent in this process: one of them polls for all, and whoever hears of an outcome wakes the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from effectfence_pg.steps import Pause
from effectfence_pg.waiting.forking import begin_anew_at_fork

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class SeatedPause(Pause):
    """Wait this long, or until the seat's bell rings."""

    seat: Seat | None = None


class WaitingRoom:
    """The seats of one fence, by intent. The first of an intent leads."""

    def __init__(self) -> None:
        self.listen: Callable[[], object] | None = None
        begin_anew_at_fork(self)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nobody waits here: in a forked process a leader of the parent's would never poll for those who come after it."""
        self.lock = Lock()
        self.seats: dict[bytes, list[Seat]] = {}

    def waits(self, key: bytes) -> int:
        """How many wait for this intent."""
        with self.lock:
            return len(self.seats.get(key, ()))

    def ring(self, key: bytes) -> None:
        """Something is said to have become of the intent: let the one who polls look now."""
        with self.lock:
            seats = self.seats.get(key)
            bell = seats[0].rung() if seats else None
        if bell:
            bell()


class Seat:
    """One caller's place; taken when it has to wait."""

    def __init__(self, room: WaitingRoom, key: bytes) -> None:
        self.answer: Any = None
        self._room = room
        self._key = key
        self._woken = False
        self._bell: Callable[[], object] | None = None
        self.taken = False

    @property
    def listens(self) -> bool:
        """Whether somebody may ring before the next poll is due."""
        return self.taken and self._room.listen is not None

    @property
    def leads(self) -> bool:
        """Whether this is the one who polls."""
        with self._room.lock:
            seats = self._room.seats.get(self._key)
            return bool(seats) and seats[0] is self

    def take(self) -> None:
        """Sit down, if that was not done before."""
        if self.taken:
            return
        self.taken, self._woken = True, False
        with self._room.lock:
            self._room.seats.setdefault(self._key, []).append(self)
        if self._room.listen is not None:
            self._room.listen()

    def arm(self, bell: Callable[[], object]) -> bool:
        """Have the bell called, from any thread, when there is something to look at; False when there is already."""
        with self._room.lock:
            woken, self._woken = self._woken, False
            self._bell = None if woken else bell
            return not woken

    def rung(self) -> Callable[[], object] | None:
        """Mark the seat as woken, with the room locked; the bell to call afterwards."""
        bell, self._bell = self._bell, None
        self._woken = bell is None
        return bell

    def leave(self, answer: Any, *, decided: bool) -> None:
        """Get up.

        The others get the answer when it is theirs as well, look for themselves when the intent has moved, and are led by the
        next one otherwise.
        """
        if not self.taken:
            return
        self.taken = False
        with self._room.lock:
            seats = self._room.seats.get(self._key, [])
            led = bool(seats) and seats[0] is self
            if self in seats:
                seats.remove(self)
            woken: list[Seat] = []
            if decided and led:
                woken, seats = seats, []
                for other in woken:
                    other.answer, other.taken = answer, False
            elif led:
                woken = seats[:1]
            if seats:
                self._room.seats[self._key] = seats
            else:
                self._room.seats.pop(self._key, None)
            bells = [bell for other in woken if (bell := other.rung())]
        for bell in bells:
            bell()


def pause(asked: Pause) -> None:
    """Wait here, in this thread."""
    if not isinstance(asked, SeatedPause) or asked.seat is None:
        time.sleep(asked.seconds)
        return
    rung = Event()
    if asked.seat.arm(rung.set):
        rung.wait(asked.seconds)


async def apause(asked: Pause) -> None:
    """Wait here, in this task."""
    if not isinstance(asked, SeatedPause) or asked.seat is None:
        await asyncio.sleep(asked.seconds)
        return
    loop, rung = asyncio.get_running_loop(), asyncio.Event()

    def bell() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(rung.set)

    if asked.seat.arm(bell):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rung.wait(), asked.seconds)
