"""What a type checker sees of the callers' side. Checked, and never run."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from effectfence_pg import (
    AsyncFence,
    CurrentEffect,
    EffectCert,
    EffectRequest,
    Fence,
    Fresh,
    Held,
    Ran,
    Replay,
    current_effect,
)

fence, afence = Fence("postgresql://"), AsyncFence("postgresql://")
request = EffectRequest(intent="i", domain="d", tool="t", agent="a")


@fence.fenced(intent="charge:{order_id}")
def charge(order_id: str, cents: int = 1) -> dict[str, int]:
    return {order_id: cents}


@fence.fenced()
async def acharge(order_id: str) -> int:
    return len(order_id)


@afence.fenced(wait_seconds=1)
def threaded(order_id: str) -> int:
    return len(order_id)


@afence.fenced(identity=("order_id",))
async def awaited(order_id: str) -> int:
    return len(order_id)


class Billing:
    @fence.fenced()
    def charge(self, order_id: str) -> int:
        return len(order_id)


def tool() -> int:
    return current_effect().seq


def told(effect: CurrentEffect) -> str:
    return effect.idempotency_key


async def atool() -> int:
    return 1


def insert(connection: Connection) -> int:
    return connection.info["rows"]


async def ainsert(connection: AsyncConnection) -> str:
    return str(connection)


assert_type(charge("1", cents=2), dict[str, int])
assert_type(Billing().charge("1"), int)
assert_type(fence.run(request, tool), Ran[int])
assert_type(fence.run(request, told).result, str)
assert_type(fence.run_in_transaction(request, insert), Ran[int])
coroutine: Coroutine[Any, Any, int] = threaded("1")


async def main() -> None:
    assert_type(await acharge("1"), int)
    assert_type(await threaded("1"), int)
    assert_type(await awaited("1"), int)
    assert_type(await afence.bind(charge)("1"), dict[str, int])
    assert_type(await afence.run(request, atool), Ran[int])
    assert_type(await fence.arun(request, atool), Ran[int])
    assert_type(await afence.run_in_transaction(request, ainsert), Ran[str])
    assert_type(await afence.prepare(request), Fresh | Replay)
    ticket = await afence.prepare(request)
    assert isinstance(ticket, Fresh)
    assert_type(await afence.commit(ticket.prepared, 1), EffectCert | Held)


charge(1)  # pyright: ignore[reportArgumentType]
threaded(order=1)  # pyright: ignore[reportCallIssue]
