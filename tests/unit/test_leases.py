"""When leases are renewed: bookkeeping with a clock that the test moves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from effectfence_pg.errors import LeaseLost
from effectfence_pg.running.leases import Book

OWNER, OTHER = object(), object()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> Book:
    return Book(clock)


def ticket(number: int = 0) -> Any:
    return cast("Any", number)


def test_nothing_is_due_before_a_period_has_passed(book: Book, clock: Clock) -> None:
    assert book.wait_seconds() is None
    _, first = book.add(OWNER, ticket(), 20.0)
    assert first
    assert book.wait_seconds() == 20.0
    clock.now += 19.9
    assert book.due() == []
    clock.now += 0.1
    assert len(book.due()) == 1
    assert book.wait_seconds() == 20.0


def test_effects_of_equal_leases_are_one_statement_a_period_whenever_they_began(book: Book, clock: Clock) -> None:
    statements = 0
    for number in range(320):
        book.add(OWNER, ticket(number), 20.0)
        clock.now += 0.125
        statements += len(book.due())
    assert statements == 2
    clock.now += 20
    (batch,) = book.due()
    assert len(batch.leases) == 320


def test_no_lease_waits_longer_than_its_period(book: Book, clock: Clock) -> None:
    renewed: dict[Any, float] = {}
    for step in range(1000):
        if step % 7 == 0:
            lease, _ = book.add(OWNER, ticket(step), 5.0)
            renewed[lease] = clock.now
        clock.now += 0.05
        for batch in book.due():
            for lease in batch.leases:
                assert clock.now - renewed[lease] <= 5.06
                renewed[lease] = clock.now


def test_more_than_a_batch_is_as_many_statements_as_it_needs(book: Book, clock: Clock) -> None:
    for number in range(1100):
        book.add(OWNER, ticket(number), 20.0)
    clock.now += 20
    assert [len(batch.leases) for batch in book.due()] == [500, 500, 100]


def test_fences_and_lengths_are_kept_apart(book: Book, clock: Clock) -> None:
    book.add(OWNER, ticket(), 20.0)
    assert book.add(OTHER, ticket(), 20.0)[1] is False
    assert book.add(OWNER, ticket(), 5.0)[1] is True
    clock.now += 20
    assert {(batch.owner, batch.period_seconds) for batch in book.due()} == {(OWNER, 20.0), (OTHER, 20.0), (OWNER, 5.0)}


def test_what_is_let_go_is_not_renewed(book: Book, clock: Clock) -> None:
    lease, _ = book.add(OWNER, ticket(), 20.0)
    book.remove(lease)
    book.remove(lease)
    assert book.wait_seconds() is None
    clock.now += 20
    assert book.due() == []


def test_a_lease_that_is_gone_says_why_and_is_kept_no_longer(book: Book, clock: Clock) -> None:
    kept, _ = book.add(OWNER, ticket(1), 20.0)
    gone, _ = book.add(OWNER, ticket(2), 20.0)
    clock.now += 20
    (batch,) = book.due()
    error = LeaseLost(intent="i", attempt=1, state="failed", reason="fenced")
    book.done(batch, {1: error})
    assert (kept.lost, gone.lost) == (None, error)
    clock.now += 20
    assert [batch.leases for batch in book.due()] == [(kept,)]


def test_a_renewal_that_failed_is_tried_again_before_the_next_period(book: Book, clock: Clock) -> None:
    book.add(OWNER, ticket(), 20.0)
    clock.now += 20
    (batch,) = book.due()
    book.failed(batch)
    assert book.wait_seconds() == 5.0
