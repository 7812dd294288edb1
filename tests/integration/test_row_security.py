"""Two tenants that know each other's names: with row security on, each sees and moves its own rows only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from effectfence_pg import AsyncFence, Fence, FenceConfig, FenceRepository, Fresh, PermissionDenied
from tests.support.roles import acting_as, url_as
from tests.support.rows import all_of, one
from tests.support.world import World

SECURED = FenceConfig(row_security=True)
TABLES = ("certificates", "transitions", "edges", "effects", "intents", "domains", "branches")


@pytest.fixture
def app(isolated: sa.Engine) -> Iterator[sa.Engine]:
    with acting_as(isolated, "effectfence_app") as made:
        yield made


def test_it_is_off_until_somebody_switches_it_on(engine: sa.Engine, world: World) -> None:
    world.commit()
    with acting_as(engine, "effectfence_app") as acting:
        assert one(acting, "SELECT count(*) FROM effectfence.intents WHERE namespace = :n", n=world.namespace) == 1


def test_two_tenants_share_every_name_and_nothing_else(app: sa.Engine, isolated: sa.Engine) -> None:
    worlds = [World(app, namespace, SECURED) for namespace in ("a", "b")]
    for world in worlds:
        parent = world.commit("parent", branch=None)
        world.commit("child", parent=parent.hash, read_set=world.fence.observe("of:parent"))
        held = world.admit("held", branch="plan")
        world.fence.commit(held, 1)
    ours, theirs = worlds
    theirs.fence.abort_branch("plan", "no")
    assert ours.fence.status("held").state == "executed"
    assert theirs.fence.status("held").state == "aborted"
    assert one(isolated, "SELECT count(DISTINCT namespace) FROM effectfence.certificates") == 2
    with app.begin() as connection:
        connection.exec_driver_sql("SET LOCAL effectfence.namespace = 'a'")
        for table in TABLES:
            seen = connection.scalars(sa.text(f"SELECT DISTINCT namespace FROM effectfence.{table}")).all()
            assert seen == ["a"], table


def test_a_fence_that_names_one_tenant_and_asks_for_another_is_refused(app: sa.Engine, isolated: sa.Engine) -> None:
    World(app, "b", SECURED).commit()
    before = World(isolated, "b").rows()
    mine = World(app, "a", SECURED)
    mine.fence._calls.namespace = "b"  # a bug in an application: the key of one tenant under the name of another
    with pytest.raises(PermissionDenied):
        mine.admit("new")
    assert all_of(app, "SELECT * FROM effectfence.effects") == []
    assert World(isolated, "b").rows() == before


READS: list[Callable[[Any], Any]] = [
    lambda fence: fence.status("charge:1"),
    lambda fence: fence.current("of:charge:1"),
    lambda fence: fence.observe("of:charge:1"),
    lambda fence: fence.prepare({"intent": "other", "domain": "d", "tool": "t", "agent": "x"}),
    lambda fence: fence.sweep(),
]


@pytest.mark.parametrize("number", range(len(READS)))
def test_without_a_name_a_fence_refuses_to_answer_instead_of_seeing_nothing(
    app: sa.Engine, isolated: sa.Engine, number: int
) -> None:
    World(app, "a", SECURED).commit()

    async def asked() -> None:
        async with AsyncFence(url_as(isolated, "effectfence_app"), namespace="a") as fence:
            await READS[number](fence)

    for ask in (lambda: READS[number](World(app, "a").fence), lambda: asyncio.run(asked())):
        with pytest.raises(PermissionDenied, match="no namespace is named") as refused:
            ask()
        assert "row_security" in refused.value.advice
    assert one(isolated, "SELECT count(*) FROM effectfence.intents") == 1


def test_without_a_name_nothing_is_seen_and_nothing_written_in_the_callers_transaction(
    app: sa.Engine, isolated: sa.Engine
) -> None:
    World(app, "a", SECURED).commit()
    with app.connect().execution_options(isolation_level="SERIALIZABLE") as connection, connection.begin():
        repository = FenceRepository(connection, namespace="a")
        assert repository.current("of:charge:1") == 0
        with pytest.raises(PermissionDenied):
            repository.prepare({"intent": "other", "domain": "d", "tool": "t", "agent": "x"})
    assert one(isolated, "SELECT count(*) FROM effectfence.intents") == 1


def test_a_fence_that_names_its_tenant_a_member_of_the_operators_and_the_owner_are_not_refused(
    isolated: sa.Engine,
) -> None:
    with Fence(url_as(isolated, "effectfence_app"), namespace="a", config=SECURED) as fence:
        assert fence.current("d") == 0
    for url in (url_as(isolated, "effectfence_operator"), isolated.url):
        with Fence(url, namespace="a") as fence:
            assert fence.current("d") == 0


def test_a_role_without_any_right_is_told_so_by_the_first_call(isolated: sa.Engine) -> None:
    url = url_as(isolated, "pg_monitor")

    async def asked() -> None:
        async with AsyncFence(url, namespace="a") as fence:
            await fence.current("d")

    with Fence(url, namespace="a") as fence:
        for ask in (lambda: fence.current("d"), lambda: asyncio.run(asked())):
            with pytest.raises(PermissionDenied, match="permission denied"):
                ask()


def test_the_name_ends_with_the_transaction_and_is_not_left_on_the_connection(app: sa.Engine) -> None:
    world = World(app, "a", SECURED)
    world.commit()
    world.fence.status("charge:1")
    with app.connect() as connection:
        assert connection.scalar(sa.text("SELECT coalesce(current_setting('effectfence.namespace', true), '')")) == ""


def test_the_callers_transaction_names_its_tenant_itself(app: sa.Engine) -> None:
    with app.connect().execution_options(isolation_level="SERIALIZABLE") as connection, connection.begin():
        connection.exec_driver_sql("SET LOCAL effectfence.namespace = 'a'")
        repository = FenceRepository(connection, namespace="a")
        admission = repository.prepare({"intent": "i", "domain": "d", "tool": "t", "agent": "x"})
        assert isinstance(admission, Fresh)
        repository.commit(admission.prepared, 1)
    assert World(app, "a", SECURED).fence.status("i").state == "committed"


def test_the_connection_can_name_it_for_all_its_transactions(isolated: sa.Engine) -> None:
    url = url_as(isolated, "effectfence_app", **{"effectfence.namespace": "a"})
    with Fence(url, namespace="a") as fence:
        assert isinstance(fence.prepare({"intent": "i", "domain": "d", "tool": "t", "agent": "x"}), Fresh)


@pytest.mark.parametrize("namespace", ["it's", 'back\\slash"', "é 漢字"])
def test_any_namespace_is_named_as_it_is(app: sa.Engine, namespace: str) -> None:
    world = World(app, namespace, SECURED)
    world.commit()
    assert world.fence.status("charge:1").state == "committed"


def test_the_awaited_fence_names_it_too_and_so_does_a_run_in_one_transaction(isolated: sa.Engine) -> None:
    url = url_as(isolated, "effectfence_app")
    request = {"domain": "d", "tool": "t", "agent": "x"}

    async def act() -> None:
        async with AsyncFence(url, namespace="a", config=SECURED) as fence:
            admission = await fence.prepare({"intent": "awaited", **request})
            await fence.commit(admission.prepared, 1)
            ran = await fence.run_in_transaction({"intent": "together, awaited", **request}, _one_async)
            assert ran.result == 1

    asyncio.run(act())
    with Fence(url, namespace="a", config=SECURED) as fence:
        assert (
            fence.run_in_transaction({"intent": "together", **request}, lambda c: c.scalar(sa.text("SELECT 1"))).result
            == 1
        )
    assert all_of(isolated, "SELECT DISTINCT namespace FROM effectfence.certificates") == ["a"]
    assert one(isolated, "SELECT count(*) FROM effectfence.certificates") == 3


async def _one_async(connection: AsyncConnection) -> int:
    return (await connection.execute(sa.text("SELECT 1"))).scalar_one()


def test_operators_and_auditors_see_every_tenant(app: sa.Engine, isolated: sa.Engine) -> None:
    for namespace in ("a", "b"):
        World(app, namespace, SECURED).put("failed")
    with acting_as(isolated, "effectfence_auditor") as auditor:
        assert all_of(auditor, "SELECT namespace FROM effectfence.unresolved ORDER BY 1") == ["a", "b"]
    with acting_as(isolated, "effectfence_operator") as operator:
        World(operator, "b").fence.clear("charge:1", attempt=1, basis="holder_dead", evidence=1, operator="o")
        assert all_of(operator, "SELECT namespace FROM effectfence.unresolved ORDER BY 1") == ["a"]
