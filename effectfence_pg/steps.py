"""What to do about an operation and what it chains, whoever runs it: retries, and when to give up. No I/O.

Steps ask for executions and pauses, and are told what came back. A few lines drive them: here at once, in
`async_transactions` in an event loop.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import psycopg
from sqlalchemy import exc

from effectfence_pg.errors import DatabaseUnavailable, RetriesExhausted, SerializationConflict
from effectfence_pg.sql.operation import Operation, Then
from effectfence_pg.sqlstates import ODD, passes, sqlstate, translate

T = TypeVar("T")

MAX_STEPS = 16
BACKOFF_BASE_SECONDS = 0.001
BACKOFF_MAX_SECONDS = 0.25


class ConnectionLost(Exception):  # noqa: N818 (a signal between this module's functions, never raised to callers)
    """The connection died after the operation was sent: whether it was committed is unknown."""


class NotReached(Exception):  # noqa: N818
    """No connection could be had: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this long; `retry` when a transaction is about to be run again, and not an answer to be asked for again."""

    seconds: float
    retry: bool = False


Steps = Generator[Operation[Any] | Pause, Any, T]
"""What a caller has to do, one thing after the other: run an operation in a transaction of its own and send back the row (or
throw the error), or wait. It ends with the answer."""


def steps(operation: Operation[T], deadline_seconds: float, *, insists: bool = False) -> Steps[T]:
    """Run an operation and what it chains, retrying each transaction as a whole until the deadline.

    A lost connection is retried as well: every operation carries its own token and recognises its own earlier success. One
    that cannot be had at all is a refusal at once, unless the operation `insists`.
    """
    for _ in range(MAX_STEPS):
        try:
            verdict = operation.interpret((yield operation))
        except UNANSWERED as error:
            verdict = yield from _again(operation, time.monotonic() + deadline_seconds, error, insists=insists)
        if type(verdict) is not Then:
            return cast("T", verdict)
        operation = cast("Then[T]", verdict).operation
    raise SerializationConflict(sqlstate="40001")


UNANSWERED = (SerializationConflict, psycopg.Error, exc.DBAPIError, ConnectionLost, NotReached)
"""What `steps` decides about: whether the transaction is run again, and when."""


def _again(operation: Operation[T], deadline: float, failed: Exception, *, insists: bool) -> Steps[T | Then[T]]:
    started, attempt, sent, odd = time.monotonic(), 0, insists, 0
    error: Exception = failed
    while True:
        attempt += 1
        if isinstance(error, ConnectionLost):
            sent = True
            _give_up_after(deadline, error)
        elif isinstance(error, NotReached):
            # Nothing was ever sent: refuse now. After a lost answer it is worth waiting for the server to come back.
            _give_up_after(deadline if sent else 0.0, error)
        else:
            state = sqlstate(error)
            odd += state in ODD
            if state is None or not passes(state, odd):
                raise translate(error) from error
            if time.monotonic() >= deadline:
                elapsed = time.monotonic() - started
                raise RetriesExhausted(attempts=attempt, elapsed_seconds=elapsed, sqlstate=state) from error
        yield Pause(backoff(attempt), retry=True)
        try:
            return operation.interpret((yield operation))
        except UNANSWERED as again:
            error = again


def _give_up_after(deadline: float, error: Exception) -> None:
    if time.monotonic() >= deadline:
        raise DatabaseUnavailable(reason=str(error)) from error


def backoff(attempt: int) -> float:
    """Full jitter, seconds: a burst of rivals spreads out instead of meeting again."""
    return random.uniform(0, min(BACKOFF_MAX_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt))  # noqa: S311


def drive(running: Steps[T], execute: Callable[[Operation[Any]], Any], pause: Callable[[Pause], None]) -> T:
    """Do what the steps ask for, here and now."""
    try:
        asked = next(running)
        while True:
            if isinstance(asked, Pause):
                pause(asked)
                asked = running.send(None)
                continue
            try:
                row = execute(asked)
            except Exception as error:  # noqa: BLE001 (every outcome goes back to the steps, which decide)
                asked = running.throw(error)
            else:
                asked = running.send(row)
    except StopIteration as done:
        return done.value
