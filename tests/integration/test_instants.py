"""Instants of tickets and certificates are those on record, to the microsecond, whatever the session is set to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from effectfence_pg import AsyncFenceRepository, Fence, FenceRepository
from effectfence_pg.protocol.verdicts import instant
from effectfence_pg.sql.statements import micros
from tests.support.world import World

SESSIONS = ("extra_float_digits=0", "extra_float_digits=-15", "TimeZone=Asia/Kolkata", "IntervalStyle=iso_8601")
LEASE = sa.text("SELECT lease_expires_at FROM effectfence.effects WHERE namespace = :namespace")
MINTED = sa.text("SELECT minted_at FROM effectfence.certificates WHERE namespace = :namespace")
ODD = (
    "1969-12-31 23:59:59.999999+00",
    "0001-01-01 00:00:00.000001+00",
    "2026-12-01 10:00:00.123457+00",
    "2250-07-01 00:00:00.000003+00",
    "9999-12-31 23:59:59.999999+00",
)


def options(session: str) -> dict[str, Any]:
    return {"isolation_level": "SERIALIZABLE", "connect_args": {"options": f"-c {session}"}, "poolclass": sa.NullPool}


@pytest.mark.parametrize("session", SESSIONS)
def test_instants_in_the_callers_transaction_are_those_on_record(engine: sa.Engine, world: World, session: str) -> None:
    given = {"namespace": world.namespace}
    with sa.create_engine(engine.url, **options(session)).begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        ticket = repository.prepare(world.request()).prepared  # type: ignore[union-attr]
        assert ticket.lease_expires_at == connection.scalar(LEASE, given)
        assert ticket.lease_expires_at.utcoffset() == timedelta(0)
        ticket = repository.renew(ticket)
        assert ticket.lease_expires_at == connection.scalar(LEASE, given)
        minted = repository.commit(ticket, "done").minted_at  # type: ignore[union-attr]
        assert minted == connection.scalar(MINTED, given)
        assert repository.prepare(world.request()).certificate.minted_at == minted  # type: ignore[union-attr]
        assert repository.status("charge:1").certificate.minted_at == minted  # type: ignore[union-attr]
    with Fence(engine.url.update_query_dict({"options": f"-c {session}"}), namespace=world.namespace) as fence:
        for _ in range(2):
            assert fence.prepare(world.request()).certificate.minted_at == minted  # type: ignore[union-attr]


@pytest.mark.parametrize("session", SESSIONS)
def test_awaited_they_are_as_well(engine: sa.Engine, world: World, session: str) -> None:
    async def main() -> None:
        asynchronous = create_async_engine(engine.url, **options(session))
        async with asynchronous.begin() as connection:
            repository = AsyncFenceRepository(connection, namespace=world.namespace)
            ticket = (await repository.prepare(world.request())).prepared  # type: ignore[union-attr]
            assert ticket.lease_expires_at == await connection.scalar(LEASE, {"namespace": world.namespace})
        await asynchronous.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("when", ODD)
def test_an_instant_is_exact_whenever_it_is(engine: sa.Engine, when: str) -> None:
    with engine.connect() as connection:
        stored = connection.scalar(sa.text(f"SELECT {micros('CAST(:when AS timestamptz)')}"), {"when": when})
    assert instant(stored) == datetime.fromisoformat(when).astimezone(UTC)
