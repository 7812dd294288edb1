"""The connections of a fence that made its own engine: bounded, shared with whoever uses the engine, and closed in the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from effectfence_pg import Fence, FenceConfig
from effectfence_pg.migrate import downgrade, upgrade
from tests.support.racing import Race, await_waiting, domain_gate
from tests.support.until import until
from tests.support.world import World


@pytest.fixture
def name() -> str:
    return f"own-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fence(engine: sa.Engine, world: World, name: str) -> Iterator[Fence]:
    config = FenceConfig(pool_size=1, max_overflow=0, application_name=name)
    with Fence(engine.url, namespace=world.namespace, config=config) as made:
        yield made


def open_connections(engine: sa.Engine, name: str) -> int:
    with engine.connect() as connection:
        asked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
        return connection.scalar(asked, {"name": name}) or 0


def test_whoever_uses_the_engine_shares_the_one_connection(
    fence: Fence, engine: sa.Engine, world: World, name: str
) -> None:
    for number in range(3):
        prepared = fence.prepare(world.request(f"charge:{number}")).prepared
        with fence.engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT 1")) == 1
        fence.commit(prepared, "done")
    assert open_connections(engine, name) == 1


def test_an_engine_that_is_disposed_during_a_call_leaves_nothing_open(
    fence: Fence, engine: sa.Engine, world: World, name: str
) -> None:
    world.commit("earlier", domain="order:1")
    with domain_gate(engine, world.namespace, "order:1"):
        race = Race([lambda: fence.prepare(world.request("waits", domain="order:1"))]).start()
        await_waiting(engine, 1)
        fence.engine.dispose()
        assert open_connections(engine, name) == 1
    (admitted,) = race.results()
    assert admitted.prepared.seq == 2
    until(lambda: open_connections(engine, name) == 0)
    # And the fence works on.
    assert fence.commit(admitted.prepared, "done").result == "done"
    fence.close()
    until(lambda: open_connections(engine, name) == 0)


def test_what_was_prepared_for_another_schema_is_prepared_anew_on_every_connection(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    config = FenceConfig(pool_size=6, max_overflow=0, prepare_threshold=0)
    with Fence(migrated_database, namespace="shop", config=config) as fence:
        world = World(engine, "shop")

        def on_six_connections(number: str) -> None:
            world.commit(f"{number}-first", domain="order:1")
            asked = [world.request(f"{number}-{at}", domain="order:1") for at in range(6)]
            with domain_gate(engine, "shop", "order:1"):
                race = Race([lambda one=one: fence.prepare(one) for one in asked]).start()
                await_waiting(engine, 6)
            assert sorted(verdict.prepared.seq for verdict in race.results()) == [2, 3, 4, 5, 6, 7]

        on_six_connections("one")
        downgrade(migrated_database, drop_certificates=True)
        upgrade(migrated_database)
        on_six_connections("two")
    engine.dispose()
