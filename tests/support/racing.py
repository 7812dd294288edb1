"""Interleavings made certain: a gate holds racers in the middle of what they do until the server says that all are there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from effectfence_pg.values import key_of

LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.005

WAITING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND pid <> :besides"""


def await_waiting(engine: sa.Engine, count: int, *, besides: int = 0) -> list[int]:
    """Return when that many sessions of the database wait for a lock of another one; their process ids."""
    deadline = time.monotonic() + LIMIT_SECONDS
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while len(found := list(connection.scalars(sa.text(WAITING), {"besides": besides}))) != count:
            assert time.monotonic() < deadline, f"{len(found)} sessions wait for a lock, not {count}"
            time.sleep(POLL_SECONDS)
    return found


@contextlib.contextmanager
def gate(engine: sa.Engine, statement: str, **parameters: Any) -> Iterator[sa.Connection]:
    """A transaction that keeps what the statement locks until the `with` statement ends, and then never was."""
    with engine.connect() as connection:
        connection.execute(sa.text(statement), parameters)
        yield connection
        connection.rollback()


def claim_gate(engine: sa.Engine, namespace: str, intent: str) -> contextlib.AbstractContextManager[sa.Connection]:
    """Keep everybody who claims the intent waiting in the middle of the claim."""
    return gate(
        engine,
        "INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at) "
        "VALUES (:namespace, :key, :intent, 1, 1, clock_timestamp())",
        namespace=namespace,
        key=key_of(intent),
        intent=intent,
    )


def first_number_gate(
    engine: sa.Engine, namespace: str, domain: str
) -> contextlib.AbstractContextManager[sa.Connection]:
    """Keep everybody waiting who takes the first number of a domain that nobody has touched."""
    return gate(
        engine,
        "INSERT INTO effectfence.domains (namespace, domain_key, domain, seq) VALUES (:namespace, :key, :domain, 1)",
        namespace=namespace,
        key=key_of(domain),
        domain=domain,
    )


def domain_gate(engine: sa.Engine, namespace: str, *domains: str) -> contextlib.AbstractContextManager[sa.Connection]:
    """Keep everybody waiting who takes a number of these domains, which exist."""
    return gate(
        engine,
        "SELECT FROM effectfence.domains WHERE namespace = :namespace AND domain_key = ANY (:keys) FOR UPDATE",
        namespace=namespace,
        keys=[key_of(domain) for domain in domains],
    )


class Race:
    """Calls that run at the same time, each in a thread of its own."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._results: list[Any] = [None] * len(calls)
        self._threads = [
            threading.Thread(target=self._run, args=(number, call), daemon=True) for number, call in enumerate(calls)
        ]

    def _run(self, number: int, call: Callable[[], Any]) -> None:
        try:
            self._results[number] = call()
        except Exception as error:
            self._results[number] = error

    def start(self) -> Race:
        for thread in self._threads:
            thread.start()
        return self

    def results(self) -> list[Any]:
        """What each call returned or raised, once all have ended."""
        deadline = time.monotonic() + LIMIT_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
            assert not thread.is_alive(), "a racer did not end in time"
        return self._results


def of_kind(results: Sequence[Any], kind: type) -> list[Any]:
    """The results of exactly that class."""
    return [result for result in results if type(result) is kind]
