"""Fifty claimers of one new intent, a janitor beside them, whatever the server's default isolation: one winner (F12)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from effectfence_pg import Fence, Fresh, IntentInFlight, Replay, UnknownTicket
from tests.support.racing import Race, await_waiting, claim_gate, of_kind
from tests.support.rows import change, one
from tests.support.servers import libpq_url
from tests.support.world import World

CLAIMERS = 50
KINDS = (Fresh, Replay, IntentInFlight)


@pytest.fixture(params=["read committed", "repeatable read", "serializable"])
def engine_of_a_default(migrated_database: str, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """An engine on a database whose sessions begin transactions at that isolation unless they say otherwise."""
    with psycopg.connect(libpq_url(migrated_database), autocommit=True) as connection:
        name, level = sql.Identifier(connection.info.dbname), sql.Literal(request.param)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}").format(name, level))
    engine = sa.create_engine(migrated_database, pool_size=CLAIMERS + 10)
    assert one(engine, "SELECT current_setting('default_transaction_isolation')") == request.param
    yield engine
    engine.dispose()


@contextlib.contextmanager
def in_a_loop(call: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Call it again and again beside the `with` statement; at least once, and what it raised is in the list."""
    done, errors = threading.Event(), []

    def loop() -> None:
        try:
            call()
            while not done.is_set():
                call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    yield errors
    done.set()
    thread.join()


def test_of_50_claimers_beside_janitors_one_wins(engine_of_a_default: sa.Engine) -> None:
    engine, world = engine_of_a_default, World(engine_of_a_default, "tenant")
    change(engine, "CREATE TABLE public.jobs (id int PRIMARY KEY, expires_at timestamptz DEFAULT now())")
    fences = [Fence(engine, namespace="tenant") for _ in range(CLAIMERS)]

    def janitor() -> None:
        change(engine, "INSERT INTO public.jobs SELECT generate_series(1, 20)")
        change(engine, "DELETE FROM public.jobs WHERE expires_at < clock_timestamp()")
        world.fence.sweep()

    with in_a_loop(janitor) as janitors_errors:
        with claim_gate(engine, "tenant", "charge:1"):
            race = Race([lambda fence=fence: fence.prepare(world.request()) for fence in fences]).start()
            await_waiting(engine, CLAIMERS)
        results = race.results()
    assert janitors_errors == []
    assert [result for result in results if type(result) not in KINDS] == []
    (winner,) = of_kind(results, Fresh)
    # No admission without a committed row.
    assert (world.state(), world.effect()["token"]) == ("in_flight", winner.prepared.token)
    assert one(engine, "SELECT count(*) FROM effectfence.effects") == 1
    late = Race([lambda fence=fence: fence.prepare(world.request()) for fence in fences]).start()
    assert len(of_kind(late.results(), IntentInFlight)) == CLAIMERS


def test_a_janitor_that_fences_the_holder_admits_nobody(engine_of_a_default: sa.Engine) -> None:
    """The lease has run out: 16 sweepers and 16 duplicates meet. It is fenced once, and nobody runs it."""
    engine, world = engine_of_a_default, World(engine_of_a_default, "tenant")
    world.put("expired")
    sweepers = [lambda: Fence(engine, namespace="tenant").sweep()] * 16
    duplicates = [lambda: Fence(engine, namespace="tenant").prepare(world.request())] * 16
    results = Race([*sweepers, *duplicates]).start().results()
    assert sum(of_kind(results, int)) in {0, 1}
    assert len(of_kind(results, int)) == 16, results
    assert [getattr(result, "code", result) for result in results[16:]] == ["intent_failed"] * 16
    assert world.moves() == [(None, "in_flight", "admitted"), ("in_flight", "failed", "lease_expired")]
    assert world.seq("of:charge:1") == 2


def test_an_update_that_hits_no_row_is_an_error(migrated_database: str) -> None:
    """As after a restore to a time before the admission."""
    engine = sa.create_engine(migrated_database)
    world = World(engine, "tenant")
    prepared = world.admit()
    for table in ("transitions", "effects", "intents"):
        change(engine, f"ALTER TABLE effectfence.{table} DISABLE TRIGGER USER")
        change(engine, f"DELETE FROM effectfence.{table}")
    for call in (
        lambda: world.fence.commit(prepared, "done"),
        lambda: world.fence.renew(prepared),
        lambda: world.fence.abort(prepared, "it went wrong"),
    ):
        with pytest.raises(UnknownTicket):
            call()
    engine.dispose()
