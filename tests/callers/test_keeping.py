"""Leases are kept alive while tools run: by one keeper, in one statement a period and batch, whatever becomes of one of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    AsyncFence,
    Fence,
    FenceConfig,
    FenceError,
    IntentFailed,
    IntentInFlight,
    LeaseLost,
    current_effect,
)
from effectfence_pg.running.keeping import MAX_UNDER_WAY
from effectfence_pg.sql.renewal import renew_all
from tests.support.proxy import Proxy
from tests.support.until import auntil, until
from tests.support.world import World

LIMIT = 30.0


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many leases each renewal was for, from every fence of this process."""
    seen: list[int] = []

    def counted(namespace: str, tickets: Any) -> Any:
        seen.append(len(tickets))
        return renew_all(namespace, tickets)

    monkeypatch.setattr("effectfence_pg.running.keeping.renew_all", counted)
    return seen


def renewed(world: World, intent: str = "charge:1") -> int:
    """How often the lease was renewed: the admission is version 1."""
    return world.effect(intent)["version"] - 1


def test_f13_a_tool_may_run_for_many_leases(world: World) -> None:
    rivals = 0

    def tool() -> str:
        nonlocal rivals
        for count in range(1, 7):
            until(lambda count=count: renewed(world) >= count)
            with pytest.raises(IntentInFlight):
                world.fence.prepare(world.request())
            rivals += 1
        return "done"

    # A renewal comes at a third of the lease, so that six of them take two leases.
    assert world.fence.run(world.request(lease_seconds=1.0), tool).result == "done"
    assert rivals == 6
    assert [cause for _, _, cause in world.moves()] == ["admitted", "committed"]


def test_f13_a_holder_that_is_not_heard_of_is_unknown_and_its_late_completion_settles_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("effectfence_pg.running.keeping.ThreadKeeper._keep", lambda _: None)

    def tool() -> str:
        world.expire()
        with pytest.raises(IntentFailed):
            world.fence.prepare(world.request())
        return "done after all"

    assert world.fence.run(world.request(), tool).result == "done after all"
    assert world.moves()[-1] == ("failed", "committed", "late_completion")


def test_f13_what_was_reconciled_meanwhile_stands_and_the_result_is_evidence(world: World) -> None:
    def tool() -> str:
        world.expire()
        world.fence.sweep()
        world.fence.clear("charge:1", attempt=1, basis="holder_dead", evidence="it looked so", operator="kim")
        return "done after all"

    with pytest.raises(LeaseLost) as told:
        world.fence.run(world.request(), tool)
    assert told.value.evidence_kept


def test_a_tool_hears_that_its_lease_is_lost(world: World) -> None:
    def tool() -> str:
        world.expire()
        world.fence.sweep()
        effect = current_effect()
        until(lambda: effect.lease_lost is not None)
        return effect.lease_lost.code  # type: ignore[union-attr]

    assert world.fence.run(world.request(lease_seconds=0.6), tool).result == "lease_lost"


def test_500_effects_in_flight_are_one_statement_a_period(world: World, renewals: list[int]) -> None:
    """The keeper is one task; every statement renews all of them."""

    async def main() -> None:
        # The batch is renewed often enough to be seen, and seldom enough for a busy machine to keep up.
        config = FenceConfig(lease_seconds=1.5, pool_size=4, max_overflow=0)
        url = world.engine.url.render_as_string(hide_password=False)
        async with AsyncFence(url, namespace=world.namespace, config=config) as fence:
            running, finish = asyncio.Semaphore(0), asyncio.Event()

            async def tool() -> str:
                running.release()
                await finish.wait()
                return "done"

            calls = [asyncio.create_task(fence.run(world.request(f"charge:{n}"), tool)) for n in range(500)]
            for _ in calls:
                await running.acquire()
            keepers = [task for task in asyncio.all_tasks() if task.get_name() == "effectfence-keeper"]
            assert len(keepers) == 1
            before = len(renewals)
            await auntil(lambda: len(renewals) >= before + 3)
            started = asyncio.get_running_loop().time()
            at = len(renewals)
            await auntil(lambda: len(renewals) >= at + 2)
            # Two more statements are two periods apart from the start, not two of five hundred.
            assert asyncio.get_running_loop().time() - started >= 0.5
            assert renewals[before:] == [500] * len(renewals[before:])
            finish.set()
            certificates = [ran.certificate for ran in await asyncio.gather(*calls)]
        assert len({certificate.hash for certificate in certificates if certificate}) == 500

    asyncio.run(main())
    query = "SELECT count(*) FROM effectfence.effects WHERE namespace = :n AND renewed_at IS NOT NULL"
    with world.engine.connect() as connection:
        assert connection.scalar(sa.text(query), {"n": world.namespace}) == 500


def test_one_renewal_of_many_is_one_turn(world: World, proxy: Proxy) -> None:
    with Fence(proxy.url, namespace=world.namespace) as fence:
        tickets = [world.admit(f"charge:{number}") for number in range(500)]
        fence.current("warm")
        with proxy.counted() as turns:
            assert fence.renew_within(renew_all(world.namespace, tickets), 10) == {}
        assert turns == [1]
    assert {renewed(world, f"charge:{number}") for number in range(500)} == {1}


def test_one_keeper_thread_serves_every_effect_of_the_process(world: World) -> None:
    together = threading.Barrier(9, timeout=LIMIT)

    def call(number: int) -> None:
        def tool() -> None:
            together.wait()
            together.wait()

        world.fence.run(world.request(f"charge:{number}"), tool)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    together.wait()
    assert [thread.name for thread in threading.enumerate()].count("effectfence-keeper") == 1
    together.wait()
    for thread in threads:
        thread.join()


def test_a_renewal_tells_what_became_of_each(world: World) -> None:
    kept, failed, released = (world.admit(name) for name in ("kept", "failed", "released"))
    superseded = world.put("superseded", "superseded")
    aborted = world.put("aborted_in_flight", "aborted")
    world.fence.abort(failed, "it went wrong")
    world.fence.abort(released, "never sent", effect="none")
    before = world.history("failed")
    operation = renew_all(world.namespace, [failed, kept, released, superseded, aborted])
    gone = world.fence.renew_within(operation, 10)
    assert {at: error.code for at, error in gone.items()} == {
        0: "lease_lost",
        2: "lease_lost",
        3: "lease_lost",
        4: "closure_aborted",
    }
    assert renewed(world, "kept") == 1
    assert world.history("failed") == before


def test_an_effect_that_somebody_is_deciding_does_not_hold_up_the_others(world: World) -> None:
    deciding, other = world.admit("deciding"), world.admit("other")
    with world.engine.begin() as connection:
        connection.execute(
            sa.text("SELECT FROM effectfence.effects WHERE namespace = :n AND intent = 'deciding' FOR UPDATE"),
            {"n": world.namespace},
        )
        assert world.fence.renew_within(renew_all(world.namespace, [deciding, other]), 10) == {}
    assert (renewed(world, "deciding"), renewed(world, "other")) == (0, 1)


def test_an_edited_token_renews_nothing(world: World) -> None:
    from uuid import uuid4

    prepared = world.admit()
    forged = prepared.model_copy(update={"token": uuid4()})
    before = world.rows()
    assert world.fence.renew_within(renew_all(world.namespace, [forged]), 10) == {}
    assert world.rows() == before


def test_a_renewal_that_fails_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 0

    def failing(namespace: str, tickets: Any) -> Any:
        nonlocal failures
        if not failures:
            failures += 1
            raise FenceError
        return renew_all(namespace, tickets)

    monkeypatch.setattr("effectfence_pg.running.keeping.renew_all", failing)

    def tool() -> str:
        until(lambda: renewed(world) >= 1)
        return "done"

    world.fence.run(world.request(lease_seconds=1.5), tool)
    assert failures == 1


def test_a_server_that_does_not_answer_holds_up_no_lease_of_another_fence(world: World) -> None:
    stuck, released = threading.Event(), threading.Event()
    other = World(world.engine, f"{world.namespace}-other")
    renew_within = world.fence.renew_within

    def silent(*arguments: Any) -> Any:
        stuck.set()
        assert released.wait(LIMIT)
        return renew_within(*arguments)

    def tool() -> str:
        assert stuck.wait(LIMIT)
        # The fence that is stuck tries again as well, and not without end.
        until(lambda: renewed(other) >= 6)
        names = [thread.name for thread in threading.enumerate()]
        assert 2 <= names.count("effectfence-renewal") <= MAX_UNDER_WAY + 1
        released.set()
        return "done"

    world.fence.renew_within = silent  # type: ignore[method-assign]
    held = threading.Thread(
        target=lambda: world.fence.run(world.request(lease_seconds=0.6), lambda: released.wait(LIMIT))
    )
    held.start()
    assert other.fence.run(other.request(lease_seconds=0.6), tool).result == "done"
    held.join()


def test_the_same_in_an_event_loop(world: World) -> None:
    async def main() -> None:
        url, stuck, released = world.engine.url, asyncio.Event(), asyncio.Event()
        other = World(world.engine, f"{world.namespace}-other")

        async def silent(*arguments: Any) -> Any:
            stuck.set()
            await released.wait()
            return {}

        async def tool() -> str:
            await stuck.wait()
            await auntil(lambda: renewed(other) >= 3)
            released.set()
            return "done"

        async with AsyncFence(url, namespace=world.namespace) as one, AsyncFence(url, namespace=other.namespace) as two:
            one.renew_within = silent  # type: ignore[method-assign]
            held = asyncio.ensure_future(one.run(world.request(lease_seconds=0.6), released.wait))
            await stuck.wait()
            assert (await two.run(other.request(lease_seconds=0.6), tool)).result == "done"
            await held

    asyncio.run(main())
