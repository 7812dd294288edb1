"""Two decisions that rest on the same number of a domain, at the same instant: one of them wins it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import DomainRace, Fence, Fresh
from tests.support.actor import Actor, outcomes
from tests.support.racing import Race, await_waiting, domain_gate, first_number_gate, of_kind
from tests.support.rows import all_of
from tests.support.world import World

INTENTS = "SELECT intent FROM effectfence.intents WHERE namespace = :namespace AND intent LIKE 'racer-%'"


def touched(world: World) -> int:
    """A domain that is at number 1, with everything in it settled."""
    world.commit("before", domain="order:1")
    return 1


def untouched(world: World) -> int:
    return 0


each_domain = pytest.mark.parametrize("domain", [touched, untouched], ids=lambda domain: domain.__name__)


def gate_of(engine: sa.Engine, namespace: str, expected: int) -> Any:
    return (domain_gate if expected else first_number_gate)(engine, namespace, "order:1")


@each_domain
def test_a_race_at_the_same_instant_admits_one(domain: Callable[[World], int], engine: sa.Engine, world: World) -> None:
    expected = domain(world)
    requests = [world.request(f"racer-{number}", domain="order:1", expected_seq=expected) for number in range(2)]
    with gate_of(engine, world.namespace, expected):
        race = Race([lambda request=request: world.fence.prepare(request) for request in requests]).start()
        # Both have passed their own check of the number and are about to take the next one.
        await_waiting(engine, 2)
    results = race.results()
    (admitted,), (refused,) = of_kind(results, Fresh), of_kind(results, DomainRace)
    assert admitted.prepared.seq == expected + 1
    assert (refused.domain, refused.expected, refused.actual) == ("order:1", expected, expected + 1)
    # The loser has left no trace.
    assert all_of(engine, INTENTS, namespace=world.namespace) == [admitted.prepared.intent]
    assert world.seq("order:1") == expected + 1


@each_domain
def test_a_race_between_processes_admits_one(
    domain: Callable[[World], int], engine: sa.Engine, world: World, crew: Callable[..., Sequence[Actor]]
) -> None:
    expected = domain(world)
    racers = crew()
    with gate_of(engine, world.namespace, expected):
        for number, racer in enumerate(racers):
            request = world.request(f"racer-{number}", domain="order:1", expected_seq=expected)
            racer.start(("prepare", request.model_dump(mode="json")))
        await_waiting(engine, len(racers))
    results = outcomes(racers)
    kinds = sorted(result["kind"] for result in results)
    assert kinds == [*["domain_race"] * (len(racers) - 1), "fresh"], results
    assert len(all_of(engine, INTENTS, namespace=world.namespace)) == 1
    assert world.seq("order:1") == expected + 1


@each_domain
def test_a_race_for_the_bare_number_has_one_winner(
    domain: Callable[[World], int], engine: sa.Engine, world: World
) -> None:
    expected = domain(world)
    with gate_of(engine, world.namespace, expected):
        race = Race([lambda: world.fence.reserve("order:1", expected)] * 8).start()
        await_waiting(engine, 8)
    results = race.results()
    assert of_kind(results, int) == [expected + 1]
    refused = of_kind(results, DomainRace)
    assert [(race.expected, race.actual) for race in refused] == [(expected, expected + 1)] * 7
    assert world.seq("order:1") == expected + 1


def test_those_who_expect_no_number_are_numbered_in_order_and_run_side_by_side(engine: sa.Engine, world: World) -> None:
    touched(world)
    with domain_gate(engine, world.namespace, "order:1"):
        race = Race(
            [
                lambda number=number: Fence(engine, namespace=world.namespace).prepare(
                    world.request(f"racer-{number}", domain="order:1")
                )
                for number in range(4)
            ]
        ).start()
        await_waiting(engine, 4)
    assert sorted(admitted.prepared.seq for admitted in of_kind(race.results(), Fresh)) == [2, 3, 4, 5]
