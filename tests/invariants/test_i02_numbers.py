"""I2: a number of a domain is given to at most one effect, and only ever grows."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import IntegrityError

from effectfence_pg import DomainRace, FenceError
from tests.support.rows import all_of, change
from tests.support.world import STATES, World


def test_no_number_is_given_twice_whatever_ends_an_effect(world: World) -> None:
    given: list[int] = []
    for n, state in enumerate([*STATES, *STATES]):
        prepared = world.put(state, f"charge:{n}", domain="order:1")
        given.append(prepared.seq)
        try:
            given.append(world.fence.reserve("order:1", world.seq("order:1")))
        except DomainRace:
            pytest.fail("nobody else is here")
    world.fence.sweep()
    stored = all_of(
        world.engine,
        "SELECT seq FROM effectfence.effects WHERE namespace = :n AND domain = 'order:1'",
        n=world.namespace,
    )
    assert len(given) == len(set(given))
    assert given == sorted(given)
    assert len(stored) == len(set(stored))
    assert not set(stored) & set(given[1::2]), "a bare reservation is given to no effect"


def test_effects_and_reservations_at_once_share_no_number(world: World) -> None:
    def act(n: int) -> int | None:
        chance = random.Random(n)
        if chance.random() < 0.4:
            try:
                return world.fence.reserve("order:1", world.fence.current("order:1"))
            except DomainRace:
                return None
        prepared = world.admit(f"charge:{n}", domain="order:1")
        try:
            world.fence.abort(prepared, "no") if chance.random() < 0.5 else world.fence.commit(prepared, "done")
        except FenceError as refused:
            pytest.fail(str(refused))
        return prepared.seq

    with ThreadPoolExecutor(8) as pool:
        given = [seq for seq in pool.map(act, range(40)) if seq is not None]
    assert len(given) == len(set(given))


def test_the_database_itself_keeps_a_number_from_a_second_effect(world: World) -> None:
    world.admit("charge:1", domain="order:1")
    world.admit("charge:2", domain="order:1")
    with pytest.raises(IntegrityError, match="uq_effects_domain_seq"):
        change(world.engine, "UPDATE effectfence.effects SET seq = 1 WHERE namespace = :n", n=world.namespace)
