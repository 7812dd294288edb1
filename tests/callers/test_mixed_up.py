"""What people hand over in place of the right thing is refused by what it is, with the right thing named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
import sqlalchemy.orm
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from effectfence_pg import (
    AsyncFence,
    AsyncFenceRepository,
    EffectRequest,
    FenceRepository,
    InvalidRequest,
)
from tests.support.world import World


def charge(order: str) -> str:
    return order


async def acharge(order: str) -> str:
    return order


@pytest.mark.parametrize("function", [charge, acharge])
def test_fenced_without_its_parentheses_is_told_to_have_them(world: World, function: Any) -> None:
    undeclared: Any = world.fence.fenced
    with pytest.raises(TypeError, match=r"@fence\.fenced\(\)"):
        undeclared(function)

    async def main() -> None:
        async with AsyncFence(world.engine.url, namespace=world.namespace) as fence:
            undeclared: Any = fence.fenced
            with pytest.raises(TypeError, match=r"@fence\.fenced\(\)"):
                undeclared(function)

    asyncio.run(main())


def test_a_verdict_in_place_of_its_ticket_is_told_where_the_ticket_is(world: World) -> None:
    fresh: Any = world.fence.prepare(world.request())
    for call in (lambda: world.fence.commit(fresh, "done"), lambda: world.fence.abort(fresh, "no")):
        with pytest.raises(InvalidRequest, match=r"verdict\.prepared") as refused:
            call()
        assert refused.value.field == "prepared"
    world.fence.commit(fresh.prepared, "done")
    replay: Any = world.fence.prepare(world.request())
    with pytest.raises(InvalidRequest, match=r"verdict\.certificate"):
        world.fence.commit(replay, "done")


def test_a_certificate_in_place_of_its_hash_is_told_where_the_hash_is(world: World) -> None:
    certificate = world.commit("base")
    with pytest.raises(ValidationError, match=r"certificate\.hash"):
        world.request(parent=certificate)
    wire = world.request().model_dump(mode="json") | {"parent": certificate}
    with pytest.raises(InvalidRequest, match=r"certificate\.hash") as refused:
        world.fence.prepare(wire)
    assert refused.value.field == "parent"
    assert world.commit(parent=certificate.hash).parent == certificate.hash
    assert EffectRequest.model_json_schema()["properties"]["parent"]


def test_a_repository_takes_a_connection_of_its_own_kind_and_nothing_else(world: World) -> None:
    url = world.engine.url
    wrong: tuple[Any, ...] = (
        world.engine,
        url,
        url.render_as_string(),
        None,
        AsyncConnection(create_async_engine(url)),
    )
    for given in wrong:
        with pytest.raises(InvalidRequest, match=r"give a Connection") as refused:
            FenceRepository(given)
        assert refused.value.field == "connection"
    with world.engine.connect() as connection:
        assert FenceRepository(connection, namespace=world.namespace).current("d") == 0
        with pytest.raises(InvalidRequest, match="give an AsyncConnection"):
            AsyncFenceRepository(connection)  # type: ignore[arg-type]
    with sa.orm.Session(world.engine) as session:
        assert FenceRepository(session.connection(), namespace=world.namespace).current("d") == 0
    with pytest.raises(InvalidRequest, match="give an AsyncConnection"):
        AsyncFenceRepository(create_async_engine(url))  # type: ignore[arg-type]
