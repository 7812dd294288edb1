"""A number of a domain is given once, whoever asks for it at the same time (I2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from effectfence_pg import Fresh
from tests.support.actor import Actor, outcomes
from tests.support.racing import Race, await_waiting, domain_gate, of_kind
from tests.support.rows import all_of
from tests.support.world import World

WRITERS = 32
NUMBERS = "SELECT seq FROM effectfence.effects WHERE namespace = :namespace AND domain = 'ledger' ORDER BY seq"


def test_32_writers_in_threads_never_get_the_same_number(engine: sa.Engine, world: World) -> None:
    world.commit("first", domain="ledger")
    with domain_gate(engine, world.namespace, "ledger"):
        race = Race(
            [
                lambda number=number: world.fence.prepare(world.request(f"entry-{number}", domain="ledger"))
                for number in range(WRITERS)
            ]
        ).start()
        await_waiting(engine, WRITERS)
    admitted = of_kind(race.results(), Fresh)
    assert sorted(fresh.prepared.seq for fresh in admitted) == list(range(2, WRITERS + 2))
    assert all_of(engine, NUMBERS, namespace=world.namespace) == list(range(1, WRITERS + 2))


def test_32_writers_in_processes_never_get_the_same_number(
    engine: sa.Engine, world: World, crew: Callable[..., Sequence[Actor]]
) -> None:
    racers = crew()
    world.commit("first", domain="ledger")
    with domain_gate(engine, world.namespace, "ledger"):
        for group, racer in enumerate(racers):
            each = [
                world.request(f"entry-{group}-{number}", domain="ledger") for number in range(WRITERS // len(racers))
            ]
            racer.start(*[("prepare", request.model_dump(mode="json")) for request in each])
        await_waiting(engine, WRITERS)
    numbers = [result["ticket"]["seq"] for result in outcomes(racers)]
    assert sorted(numbers) == list(range(2, WRITERS + 2))
    assert all_of(engine, NUMBERS, namespace=world.namespace) == list(range(1, WRITERS + 2))


def test_what_ends_and_what_begins_at_the_same_time_never_share_a_number(engine: sa.Engine, world: World) -> None:
    """Ends take numbers as well: aborts, commits and bare reservations race with admissions."""
    running = [world.admit(f"running-{number}", domain="ledger") for number in range(8)]
    given = world.seq("ledger")
    calls = [
        *[lambda ticket=ticket: world.fence.abort(ticket, "it went wrong").state for ticket in running[:4]],
        *[lambda ticket=ticket: world.fence.commit(ticket, "done").seq for ticket in running[4:]],
        *[lambda number=number: world.admit(f"new-{number}", domain="ledger").seq for number in range(8)],
    ]
    results = Race(calls).start().results()
    assert results[:4] == ["failed"] * 4
    assert results[4:8] == [ticket.seq for ticket in running[4:]]
    new = results[8:]
    assert len(set(new)) == 8
    assert min(new) > given
    # Eight admissions and four ends with an unknown outcome, each with a number of its own.
    assert world.seq("ledger") == given + 12
