"""Decisions that read more than they act on, at the same time: no deadlock, and no write skew (F19)."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import psycopg
import sqlalchemy as sa

from effectfence_pg import EffectCert, Fence, FenceError, Fresh, ReadSetStale, ReadSetUnsettled
from tests.support.racing import Race, await_waiting, domain_gate, first_number_gate, of_kind
from tests.support.rows import all_of
from tests.support.servers import ServerLog, libpq_url
from tests.support.world import World

WORKERS = 50
REFUSALS = (ReadSetStale, ReadSetUnsettled)
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def decide_both(world: World) -> tuple[Any, Any]:
    """Two decisions that rest on both domains, and act on one each."""
    entries = world.fence.observe("p", "q")
    return tuple(world.request(f"act-on-{domain}", domain=domain, read_set=entries) for domain in ("p", "q"))


def at_once(engine: sa.Engine, world: World, *gates: Any) -> list[Any]:
    requests = decide_both(world)
    fences = [Fence(engine, namespace=world.namespace) for _ in requests]
    pairs = zip(fences, requests, strict=True)
    with contextlib.ExitStack() as held:
        for gate in gates:
            held.enter_context(gate)
        race = Race([lambda fence=fence, request=request: fence.prepare(request) for fence, request in pairs]).start()
        # Both have read p and q as they were, and are about to take their number.
        await_waiting(engine, 2)
    return race.results()


def check_one_was_refused(results: list[Any], world: World) -> None:
    (admitted,), (refused,) = of_kind(results, Fresh), of_kind(results, ReadSetStale)
    moved = {entry.domain for entry in refused.entries}
    assert moved == {admitted.prepared.domain}
    assert all_of(
        world.engine,
        "SELECT intent FROM effectfence.intents WHERE namespace = :n AND intent LIKE 'act-%'",
        n=world.namespace,
    ) == [admitted.prepared.intent]
    assert isinstance(world.fence.commit(admitted.prepared, "done"), EffectCert)


def test_of_two_decisions_that_read_both_and_act_on_one_each_one_is_refused(engine: sa.Engine, world: World) -> None:
    for domain in ("p", "q"):
        world.commit(f"before-{domain}", domain=domain)
    check_one_was_refused(at_once(engine, world, domain_gate(engine, world.namespace, "p", "q")), world)


def test_so_it_is_when_nobody_has_touched_the_domains_before(engine: sa.Engine, world: World) -> None:
    gates = [first_number_gate(engine, world.namespace, domain) for domain in ("p", "q")]
    check_one_was_refused(at_once(engine, world, *gates), world)


def test_50_workers_with_read_sets_in_any_order_never_deadlock(
    migrated_database: str, server_log: ServerLog | None
) -> None:
    mark = server_log.mark() if server_log else 0
    engine = sa.create_engine(migrated_database, pool_size=WORKERS)
    world = World(engine, "tenant")

    def work(number: int) -> list[Any]:
        choices, fence, ended = random.Random(number), Fence(engine, namespace="tenant"), []
        for step in range(3):
            domains = choices.sample(["p", "q", f"new-{choices.randrange(5)}", "r"], k=choices.randint(2, 3))
            try:
                request = world.request(
                    f"intent-{number}-{step}", domain=choices.choice(domains), read_set=fence.observe(*domains)
                )
                verdict = fence.prepare(request)
                ended.append(fence.commit(verdict.prepared, "done"))
            except REFUSALS as error:
                ended.append(error)
        return ended

    calls = [lambda number=number: work(number) for number in range(WORKERS)]
    results = Race(calls).start().results()
    engine.dispose()
    assert [result for result in results if not isinstance(result, list)] == []
    ended = [verdict for result in results for verdict in result]
    certificates = of_kind(ended, EffectCert)
    assert certificates, "everybody was refused"
    assert all(isinstance(verdict, (EffectCert, FenceError)) for verdict in ended)
    numbers = [(certificate.domain, certificate.seq) for certificate in certificates]
    assert len(numbers) == len(set(numbers))
    # Sessions report what they saw when they end.
    with psycopg.connect(libpq_url(migrated_database)) as connection:
        assert connection.execute(DEADLOCKS).fetchone() == (0,)
    if server_log:
        assert "40P01" not in server_log.since(mark)
        assert "deadlock detected" not in server_log.since(mark)
