"""The awaited verbs are the verbs: same answers, same refusals, same rows, also in the caller's own transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from effectfence_pg import (
    AsyncFence,
    AsyncFenceRepository,
    ClosureAborted,
    Committed,
    DomainRace,
    EffectCert,
    Fence,
    FenceConfig,
    FenceError,
    FenceRepository,
    Fresh,
    Held,
    IntentFailed,
    IntentInFlight,
    IsolationTooWeak,
    Replay,
    SchemaVersionError,
    UnknownIntent,
)
from tests.support.world import World


def on(world: World, act: Callable[[AsyncFence], Awaitable[Any]], config: FenceConfig | None = None) -> Any:
    """Act on an asynchronous fence of the world's namespace, in an event loop of its own."""

    async def main() -> Any:
        url = world.engine.url.render_as_string(hide_password=False)
        async with AsyncFence(url, namespace=world.namespace, config=config) as fence:
            return await act(fence)

    return asyncio.run(main())


@pytest.mark.parametrize(("sync", "awaited"), [(Fence, AsyncFence), (FenceRepository, AsyncFenceRepository)])
def test_every_verb_is_there_with_the_same_arguments(sync: type, awaited: type) -> None:
    for name, verb in inspect.getmembers(sync, inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        other = getattr(awaited, name)
        assert inspect.iscoroutinefunction(other) or name in {"stats", "fenced", "bind"}, name
        ours, theirs = inspect.signature(verb).parameters, inspect.signature(other).parameters
        assert list(ours) == list(theirs), name
        assert [p.default for p in ours.values()] == [p.default for p in theirs.values()], name


def test_an_effect_is_admitted_committed_and_replayed(world: World) -> None:
    async def act(fence: AsyncFence) -> None:
        verdict = await fence.prepare(world.request())
        assert isinstance(verdict, Fresh)
        with pytest.raises(IntentInFlight):
            await fence.prepare(world.request())
        renewed = await fence.renew(verdict.prepared)
        certificate = await fence.commit(renewed, {"receipt": 7})
        assert isinstance(certificate, EffectCert)
        again = await fence.prepare(world.request())
        assert isinstance(again, Replay)
        assert again.certificate == certificate
        assert (await fence.status("charge:1")).state == "committed"
        assert await fence.current("of:charge:1") == 1
        assert fence.stats().admitted == 1

    on(world, act)
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)


def test_refusals_and_ways_out_are_the_same(world: World) -> None:
    async def act(fence: AsyncFence) -> None:
        with pytest.raises(UnknownIntent):
            await fence.status("charge:1")
        verdict = await fence.prepare(world.request())
        await fence.abort(verdict.prepared, "connection reset")  # type: ignore[union-attr]
        with pytest.raises(IntentFailed):
            await fence.prepare(world.request())
        status = await fence.clear("charge:1", attempt=1, basis="holder_dead", evidence="asked", operator="kim")
        assert status.state == "released"
        assert await fence.reserve("stock", 0) == 1
        with pytest.raises(DomainRace):
            await fence.reserve("stock", 0)
        again = await fence.prepare(world.request())
        assert again.prepared.attempt == 2  # type: ignore[union-attr]
        world.expire()
        assert await fence.sweep() == 1

    on(world, act)
    assert world.state() == "failed"


def test_speculation_is_decided_and_undone(world: World) -> None:
    async def act(fence: AsyncFence) -> None:
        undo = {"tool": "refund", "args": {"cents": 4900}}
        first = (await fence.prepare(world.request("a", branch="plan", compensation=undo))).prepared  # type: ignore[union-attr]
        assert isinstance(await fence.commit(first, "done"), Held)
        reader = (await fence.prepare(world.request("b", observes=["a"], branch="other"))).prepared  # type: ignore[union-attr]
        await fence.commit(reader, "done")
        fallen = (await fence.abort_branch("plan", "contradicted")).effects
        assert [effect.intent for effect in fallen] == ["b", "a"]
        with pytest.raises(ClosureAborted):
            await fence.commit(reader, "done")

        async def refund(ticket: Any) -> Any:
            return ticket.args

        undone = await fence.compensate(fallen, refund, agent="undoer")
        assert [certificate.result for certificate in undone] == [{"cents": 4900}]  # type: ignore[union-attr]
        third = (await fence.prepare(world.request("c", branch="good"))).prepared  # type: ignore[union-attr]
        await fence.commit(third, "done")
        assert isinstance(await fence.promote(branch="good"), Committed)
        assert (await fence.settle()).committed == 0

    on(world, act)


def test_many_tasks_of_one_intent_are_one_effect(world: World) -> None:
    async def act(fence: AsyncFence) -> list[Any]:
        return await asyncio.gather(*(fence.prepare(world.request()) for _ in range(30)), return_exceptions=True)

    answers = on(world, act, FenceConfig(pool_size=3, max_overflow=0))
    assert sum(isinstance(answer, Fresh) for answer in answers) == 1
    assert all(isinstance(answer, Fresh | IntentInFlight) for answer in answers)


def test_an_engine_of_the_callers_is_used_and_left_open(world: World) -> None:
    async def main() -> None:
        engine = create_async_engine(world.engine.url, pool_size=1, max_overflow=0)
        async with AsyncFence(engine, namespace=world.namespace) as fence:
            assert isinstance(await fence.prepare(world.request()), Fresh)
        async with engine.connect() as connection:
            assert await connection.scalar(sa.text("SELECT 1")) == 1
        await engine.dispose()

    asyncio.run(main())


def test_an_unmigrated_database_is_refused(fresh_database: str) -> None:
    async def main() -> None:
        async with AsyncFence(fresh_database) as fence:
            with pytest.raises(SchemaVersionError):
                await fence.observe("d")

    asyncio.run(main())


@pytest.mark.parametrize("keep", [True, False])
def test_the_repositorys_effect_is_there_with_the_callers_commit_or_not_at_all(world: World, keep: bool) -> None:
    async def main() -> None:
        engine = create_async_engine(world.engine.url, isolation_level="SERIALIZABLE")
        async with engine.connect() as connection, connection.begin() as transaction:
            repository = AsyncFenceRepository(connection, namespace=world.namespace)
            verdict = await repository.prepare(world.request())
            assert isinstance(verdict, Fresh)
            await repository.commit(verdict.prepared, "done")
            if not keep:
                await transaction.rollback()
        await engine.dispose()

    asyncio.run(main())
    assert len(world.rows()["certificates"]) == int(keep)


def test_the_repository_refuses_a_weaker_isolation(world: World) -> None:
    async def main() -> None:
        engine = create_async_engine(world.engine.url)
        async with engine.begin() as connection:
            repository = AsyncFenceRepository(connection, namespace=world.namespace)
            with pytest.raises(IsolationTooWeak):
                await repository.prepare(world.request())
        await engine.dispose()

    asyncio.run(main())
    assert all(found == [] for found in world.rows().values())


def test_errors_are_the_fences_own(world: World) -> None:
    async def act(fence: AsyncFence) -> None:
        with pytest.raises(FenceError) as refused:
            await fence.prepare({"intent": "", "domain": "d", "tool": "t", "agent": "a"})
        assert refused.value.code == "invalid_request"

    on(world, act)
