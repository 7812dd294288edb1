"""One process of a storm: its threads, its own fence, and a payment provider that keeps its own books.

Spawned processes import this module; what they are told and what they report are the values below.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from effectfence_pg.errors import FenceError, IntentFailed, IntentInFlight
from effectfence_pg.fence import Fence
from effectfence_pg.values import EffectRequest, FenceConfig, Replay

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier, Event

CENTS = 4_900
PROVIDER_SECONDS = 0.05
"""How long a charge takes at the provider: the time in which duplicates find the intent in flight."""
CONNECTIONS = 80
"""In all processes together: a server as it comes has 100, and others may be using it."""
LONGEST_WAIT_SECONDS = 300.0
STAND_DOWN = (IntentInFlight, IntentFailed)


@dataclass(frozen=True, slots=True)
class Share:
    """What one process of a storm does. `racing` and `late` are attempts per thread, before and after the seal."""

    number: int
    url: str
    namespace: str
    intent: str
    books: str
    connections: int
    racing: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Storm:
    """What a storm does: `attempts` at one charge by `processes` with `threads` each, a share of them after the seal."""

    attempts: int
    threads: int
    processes: int
    late: float
    namespace: str

    def shares(self, url: str, books: str) -> list[Share]:
        """Deal the attempts out to the threads of all processes; at least one of them races."""
        late = min(round(self.attempts * self.late), self.attempts - 1)
        connections = max(1, min(self.threads, CONNECTIONS // self.processes))

        def dealt(count: int, process: int) -> tuple[int, ...]:
            everybody = self.threads * self.processes
            seats = (thread * self.processes + process for thread in range(self.threads))
            return tuple(count // everybody + (seat < count % everybody) for seat in seats)

        return [
            Share(
                number=process,
                url=url,
                namespace=self.namespace,
                intent=f"charge:{self.namespace}",
                books=books,
                connections=connections,
                racing=dealt(self.attempts - late, process),
                late=dealt(late, process),
            )
            for process in range(self.processes)
        ]


@dataclass(slots=True)
class Tally:
    """How the attempts of one process ended. `errors` holds code and words of every attempt that ended in no other way.

    Times are of the monotonic clock, which the processes of a machine share.
    """

    executed: int = 0
    replayed: int = 0
    stood_down: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    certificates: set[str] = field(default_factory=set[str])
    started: float = 0.0
    ended: float = 0.0


class NotSealedError(Exception):
    """The race is over and nobody committed."""


def charge(books: str, order: str, cents: int) -> dict[str, Any]:
    """Move money, as far as anybody can tell from outside: one line in the provider's books for each execution."""
    time.sleep(PROVIDER_SECONDS)
    # One write of a line in append mode is atomic, whoever else writes.
    descriptor = os.open(books, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{order} {cents} {os.getpid()} {threading.get_ident()}\n".encode())
    finally:
        os.close(descriptor)
    return {"charged_cents": cents, "currency": "USD", "order": order}


class Racers:
    """The threads of one process."""

    def __init__(self, share: Share, line: Barrier, sealed: Event, progress: Any) -> None:
        self._share = share
        self._line = line
        self._sealed = sealed
        self._progress = progress
        self._lock = threading.Lock()
        self.tally = Tally()

    def run(self, fence: Fence) -> Tally:
        """Race, then come late; how it ended."""
        threads = [
            threading.Thread(target=self._thread, args=(fence, number), daemon=True)
            for number in range(len(self._share.racing))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.tally

    def _thread(self, fence: Fence, number: int) -> None:
        try:
            self._line.wait(LONGEST_WAIT_SECONDS)
            with self._lock:
                self.tally.started = self.tally.started or time.monotonic()
            self._attempts(fence, number, self._share.racing[number])
            # Everybody has raced: whoever won has committed, and what comes now comes after the seal.
            self._line.wait(LONGEST_WAIT_SECONDS)
            self._attempts(fence, number, self._share.late[number], late=True)
        except Exception as error:  # noqa: BLE001 (a thread must not end without a word)
            self._line.abort()
            self._note(error)
        with self._lock:
            self.tally.ended = time.monotonic()

    def _attempts(self, fence: Fence, number: int, count: int, *, late: bool = False) -> None:
        if late and not self._sealed.is_set():
            raise NotSealedError("nobody committed")
        for _ in range(count):
            try:
                outcome, certificate = self._attempt(fence, number)
            except STAND_DOWN:
                outcome, certificate = "stood_down", None
            except Exception as error:  # noqa: BLE001 (whatever it is, it fails the run and is shown)
                self._note(error)
                continue
            with self._lock:
                setattr(self.tally, outcome, getattr(self.tally, outcome) + 1)
                if certificate is not None:
                    self.tally.certificates.add(certificate)
                self._progress[self._share.number] += 1

    def _attempt(self, fence: Fence, number: int) -> tuple[str, str | None]:
        share = self._share
        request = EffectRequest(
            intent=share.intent,
            domain=share.intent,
            tool="payments.charge",
            agent=f"agent-{share.number}-{number}",
            args={"order": share.intent, "cents": CENTS, "currency": "USD"},
        )
        verdict = fence.prepare(request)
        if isinstance(verdict, Replay):
            return "replayed", verdict.certificate.hash
        result = charge(share.books, share.intent, CENTS)
        certificate: Any = fence.commit(verdict.prepared, result)
        self._sealed.set()
        return "executed", certificate.hash

    def _note(self, error: Exception) -> None:
        code = error.code if isinstance(error, FenceError) else type(error).__name__
        with self._lock:
            self.tally.errors.append((code, " ".join(str(error).split())))


def run(share: Share, line: Barrier, sealed: Event, progress: Any, report: Connection) -> None:
    """The process. It reports a `Tally`, or the refusal that kept it from the start line."""
    # Ctrl-C goes to the whole group; the parent is who answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    config = FenceConfig(pool_size=share.connections, max_overflow=0, application_name="effectfence-storm")
    try:
        with Fence(share.url, namespace=share.namespace, config=config) as fence:
            _connect_all(fence, share.connections)
            report.send(Racers(share, line, sealed, progress).run(fence))
    except Exception as error:  # noqa: BLE001 (the parent decides what it means)
        line.abort()
        report.send(error if isinstance(error, FenceError) else Tally(errors=[(type(error).__name__, str(error))]))


def _end_with_the_parent() -> None:
    """Nobody would hear how it ended. What is in flight then is what an agent leaves that was killed."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _connect_all(fence: Fence, count: int) -> None:
    """Open every connection before the race: it is for the charge, not for connections."""
    fence.current("nothing")
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(fence.engine.connect())
