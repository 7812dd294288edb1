"""One process of the storm: threads that try intents, do the effect when they are admitted, and record it when they can.

A thread that loses the database goes on asking, as a caller would. Now and then one walks away between the effect and the
record, as a process that is killed there.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from chaotic.books import Books
from effectfence_pg import (
    DatabaseUnavailable,
    EffectRequest,
    Fence,
    FenceConfig,
    FenceError,
    Fresh,
    IntentFailed,
    IntentInFlight,
    ReadSetStale,
    RetriesExhausted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event

T = TypeVar("T")

REFUSALS = (IntentInFlight, IntentFailed, ReadSetStale)
OUTAGES = (DatabaseUnavailable, RetriesExhausted)
OUTAGE_PAUSE_SECONDS = 0.05
LONGEST_OUTAGE_SECONDS = 120.0
DOMAINS = 7
LEASE_SECONDS = 1.0
"""Short, so that some run out while the server is away, and what ran then completes late."""
WALKS_AWAY, SWEEPS = 0.05, 0.15
"""How often: of the executions, and after an attempt."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process does. `orders` has the numbers of the intents that each thread tries at least, in its order."""

    url: str
    namespace: str
    books: str
    seed: int
    orders: tuple[tuple[int, ...], ...]


class LostError(Exception):
    """The database did not come back."""


def run(plan: Plan, calm: Event) -> None:
    """The process: it ends when its threads have tried everything, and no more crashes are to come."""
    # The pool tells of every connection that died, and here that is no news.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    config = FenceConfig(pool_size=len(plan.orders), lease_seconds=LEASE_SECONDS, application_name="effectfence-chaos")
    with Fence(plan.url, namespace=plan.namespace, config=config) as fence:
        threads = [
            threading.Thread(target=_thread, args=(fence, plan, number, calm), daemon=True)
            for number in range(len(plan.orders))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _thread(fence: Fence, plan: Plan, number: int, calm: Event) -> None:
    choices, books = random.Random(f"{plan.seed}-{number}"), Books(plan.books)  # noqa: S311 (repeatable, not secret)
    for intent in _numbers(plan.orders[number], choices, calm):
        try:
            _attempt(fence, intent, books, choices)
        except Exception as error:  # noqa: BLE001 (everything that is not expected is what chaos looks for)
            code = error.code if isinstance(error, FenceError) else type(error).__name__
            books.note("error", code=code, message=str(error), intent=f"intent-{intent}")
        if choices.random() < SWEEPS:
            _insistently(fence.sweep)


def _numbers(order: tuple[int, ...], choices: random.Random, calm: Event) -> Iterator[int]:
    """Everything in the order, then anything of it again until it is calm: no crash comes when nobody is at work."""
    yield from order
    while order and not calm.is_set():
        yield choices.choice(order)


def _attempt(fence: Fence, number: int, books: Books, choices: random.Random) -> None:
    intent, domain = f"intent-{number}", f"domain-{number % DOMAINS}"
    books.note("attempt", intent=intent)
    try:
        read = _insistently(lambda: fence.observe(f"domain-{(number + 1) % DOMAINS}")) if number % 5 == 0 else ()
        request = EffectRequest(intent=intent, domain=domain, tool="charge", agent="agent", args=number, read_set=read)
        verdict = _insistently(lambda: fence.prepare(request))
    except REFUSALS as error:
        books.note("refused", intent=intent, code=error.code)
        return
    if not isinstance(verdict, Fresh):
        books.note("replayed", intent=intent, hash=verdict.certificate.hash)
        return
    ticket = verdict.prepared
    books.note("executed", intent=intent, attempt=ticket.attempt, token=str(ticket.token), seq=ticket.seq)
    if choices.random() < WALKS_AWAY:
        return
    try:
        certificate: Any = _insistently(lambda: fence.commit(ticket, {"charged": number}))
    except ReadSetStale as error:
        books.note("stale", intent=intent, code=error.code)
        return
    books.note("acknowledged", intent=intent, hash=certificate.hash)


def _insistently(call: Callable[[], T]) -> T:
    """Call again while the database is away."""
    deadline = time.monotonic() + LONGEST_OUTAGE_SECONDS
    while True:
        try:
            return call()
        except OUTAGES as error:
            if time.monotonic() > deadline:
                raise LostError(str(error)) from error
            time.sleep(OUTAGE_PAUSE_SECONDS)
