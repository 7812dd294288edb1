"""The fence in the caller's own transaction: your rows and the certificate commit together, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from effectfence_pg import (
    ClosurePending,
    EffectCert,
    FenceConfig,
    FenceRepository,
    Fresh,
    IntentFailed,
    IntentInFlight,
    IsolationTooWeak,
    Replay,
    SerializationConflict,
    is_retryable,
)
from tests.support.rows import change, one
from tests.support.world import World


@pytest.fixture
def orders(engine: sa.Engine) -> Iterator[str]:
    """A table of the user's."""
    name = f"orders_{uuid.uuid4().hex}"
    change(engine, f"CREATE TABLE {name} (id text PRIMARY KEY)")
    yield name
    change(engine, f"DROP TABLE {name}")


@pytest.fixture
def serializable(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(isolation_level="SERIALIZABLE")


def stored(engine: sa.Engine, orders: str) -> int:
    return one(engine, f"SELECT count(*) FROM {orders}")


def order(connection: sa.Connection, orders: str, name: str = "order-1") -> None:
    connection.execute(sa.text(f"INSERT INTO {orders} VALUES (:id)"), {"id": name})


def perform(connection: sa.Connection, world: World, orders: str) -> EffectCert:
    """Prepared, done and certified: an effect that lives in the same database."""
    repository = FenceRepository(connection, namespace=world.namespace)
    verdict = repository.prepare(world.request())
    if isinstance(verdict, Replay):
        return verdict.certificate
    order(connection, orders)
    certificate = repository.commit(verdict.prepared, "ordered")
    assert isinstance(certificate, EffectCert)
    return certificate


def test_an_effect_in_the_same_database_is_done_and_certified_in_one_transaction(
    world: World, serializable: sa.Engine, orders: str
) -> None:
    with serializable.begin() as connection:
        certificate = perform(connection, world, orders)
    assert stored(world.engine, orders) == 1
    for _ in range(2):
        with serializable.begin() as connection:
            assert perform(connection, world, orders) == certificate
    assert stored(world.engine, orders) == 1
    assert world.status().certificate == certificate
    assert world.moves() == [(None, "in_flight", "admitted"), ("in_flight", "committed", "committed")]


def test_rows_and_certificate_roll_back_together(world: World, serializable: sa.Engine, orders: str) -> None:
    before = world.rows()
    with serializable.connect() as connection:
        perform(connection, world, orders)
        assert connection.scalar(sa.text(f"SELECT count(*) FROM {orders}")) == 1
        connection.rollback()
    assert stored(world.engine, orders) == 0
    assert world.rows() == before
    with serializable.begin() as connection:
        assert perform(connection, world, orders).attempt == 1


def test_a_sessions_own_transaction_will_do(world: World, serializable: sa.Engine, orders: str) -> None:
    for keep in (False, True):
        with Session(serializable) as session:
            session.execute(sa.text(f"INSERT INTO {orders} VALUES (:id)"), {"id": f"before-{keep}"})
            perform(session.connection(), world, orders)
            session.commit() if keep else session.rollback()
        assert stored(world.engine, orders) == (2 if keep else 0)
        assert len(world.rows()["certificates"]) == int(keep)


def test_it_never_commits_and_others_see_nothing_before_the_caller_does(world: World, serializable: sa.Engine) -> None:
    ended: list[str] = []
    with serializable.connect() as connection:
        sa.event.listen(connection, "commit", lambda _: ended.append("commit"))
        sa.event.listen(connection, "rollback", lambda _: ended.append("rollback"))
        repository = FenceRepository(connection, namespace=world.namespace)
        prepared = repository.prepare(world.request()).prepared
        repository.renew(prepared)
        repository.commit(prepared, "done")
        assert isinstance(repository.prepare(world.request()), Replay)
        assert connection.in_transaction()
        assert ended == []
        assert all(found == [] for found in world.rows().values())
        connection.commit()
    assert ended == ["commit"]
    assert world.state() == "committed"


def test_a_refusal_leaves_the_transaction_usable(world: World, serializable: sa.Engine, orders: str) -> None:
    world.admit("held")
    with serializable.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        with pytest.raises(IntentInFlight):
            repository.prepare(world.request("held"))
        perform(connection, world, orders)
    assert stored(world.engine, orders) == 1


def test_every_verb_is_there_and_acts_in_the_callers_transaction(world: World, serializable: sa.Engine) -> None:
    failed = world.admit("failed")
    with serializable.connect() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        assert repository.current("order:1") == 0
        assert repository.reserve("order:1", 0) == 1
        assert repository.observe("order:1", "untouched")[0].seq == 1
        assert repository.abort(failed, "no").state == "failed"
        assert repository.status("failed").state == "failed"
        released = repository.clear("failed", attempt=1, basis="holder_dead", evidence=1, operator="o")
        assert released.state == "released"
        again = repository.prepare(world.request("failed")).prepared
        repository.abort(again, "no")
        happened = repository.reconcile("failed", attempt=2, outcome="happened", result=1, evidence=1, operator="o")
        assert happened.certificate is not None
        connection.rollback()
    assert world.state("failed") == "in_flight"
    assert world.seq("order:1") == 0


def test_an_expired_lease_is_fenced_in_the_callers_transaction(world: World, serializable: sa.Engine) -> None:
    world.put("expired")
    with serializable.connect() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        with pytest.raises(IntentFailed):
            repository.prepare(world.request())
        connection.rollback()
        assert world.state() == "in_flight"
        with pytest.raises(IntentFailed):
            repository.prepare(world.request())
        connection.commit()
    assert world.state() == "failed"


def test_a_takeover_and_a_new_attempt_work_here_as_well(world: World, serializable: sa.Engine) -> None:
    world.put("expired", "taken over", on_lease_expiry="takeover")
    world.put("released", "reopened")
    with serializable.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        for intent in ("taken over", "reopened"):
            verdict = repository.prepare(world.request(intent))
            assert isinstance(verdict, Fresh)
            assert verdict.prepared.attempt == 2
            repository.commit(verdict.prepared, "done")


def test_a_held_intent_names_its_blockers_here_as_well(world: World, serializable: sa.Engine) -> None:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    with serializable.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        with pytest.raises(ClosurePending):
            repository.commit(prepared, "done", closure="wait")
        with pytest.raises(IntentInFlight) as refused:
            repository.prepare(world.request(observes=["base"]))
    assert [b.intent for b in refused.value.blockers] == ["base"]


def test_the_configuration_is_the_callers(world: World, serializable: sa.Engine) -> None:
    with serializable.begin() as connection:
        config = FenceConfig(lease_seconds=7.0)
        repository = FenceRepository(connection, namespace=world.namespace, config=config)
        assert repository.namespace == world.namespace
        assert repository.prepare(world.request()).prepared.lease_seconds == 7.0


WRITES: dict[str, Callable[[FenceRepository, World, Any], object]] = {
    "prepare": lambda repository, world, _: repository.prepare(world.request("new")),
    "prepare resting": lambda repository, world, _: repository.prepare(world.request("new", observes=["charge:1"])),
    "replay": lambda repository, world, _: repository.prepare(world.request("done")),
    "reopen": lambda repository, world, _: repository.prepare(world.request("released")),
    "takeover": lambda repository, world, _: repository.prepare(world.request("expired")),
    "commit": lambda repository, _, ticket: repository.commit(ticket, "done"),
    "hold": lambda repository, _, ticket: repository.commit(ticket, "done", closure="hold"),
    "abort": lambda repository, _, ticket: repository.abort(ticket, "no"),
    "renew": lambda repository, _, ticket: repository.renew(ticket),
    "reserve": lambda repository, *_: repository.reserve("order:1", 0),
    "reconcile": lambda repository, *_: repository.reconcile(
        "failed", attempt=1, outcome="compensated", evidence=1, operator="o"
    ),
}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "AUTOCOMMIT"])
def test_a_weaker_isolation_is_refused_and_nothing_is_written(world: World, level: str) -> None:
    ticket = world.admit()
    world.commit("done")
    world.put("failed", "failed")
    world.put("released", "released")
    world.put("expired", "expired", on_lease_expiry="takeover")
    before = world.rows()
    with world.engine.connect().execution_options(isolation_level=level) as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        for act in WRITES.values():
            with pytest.raises(IsolationTooWeak) as refused:
                act(repository, world, ticket)
            weak = "read committed" if level == "AUTOCOMMIT" else level.lower()
            assert refused.value.isolation == weak
            assert connection.scalar(sa.text("SELECT pg_current_xact_id_if_assigned()")) is None
        if level != "AUTOCOMMIT":
            connection.commit()
    assert world.rows() == before


def test_reads_are_answered_in_any_isolation(world: World) -> None:
    world.commit(domain="order:1")
    with world.engine.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        assert repository.current("order:1") == 1
        assert repository.observe("order:1")[0].settled
        assert repository.status("charge:1").state == "committed"


@pytest.mark.parametrize("same", ["intent", "domain"])
def test_a_lost_race_is_a_conflict_of_the_caller_and_is_not_retried(
    world: World, serializable: sa.Engine, orders: str, same: str
) -> None:
    with serializable.connect() as winner, serializable.connect() as loser:
        order(loser, orders, "loser")  # its snapshot is from before the winner's commit
        request = world.request(domain="shared")
        FenceRepository(winner, namespace=world.namespace).prepare(request)
        winner.commit()
        rival = request if same == "intent" else world.request("charge:2", domain="shared")
        with pytest.raises(SerializationConflict) as refused:
            FenceRepository(loser, namespace=world.namespace).prepare(rival)
        assert refused.value.sqlstate == "40001"
        assert refused.value.retryable
        assert is_retryable(refused.value)
        with pytest.raises(sa.exc.DBAPIError):
            loser.execute(sa.text("SELECT 1"))
        loser.rollback()
        assert stored(world.engine, orders) == 0

        repository = FenceRepository(loser, namespace=world.namespace)
        if same == "intent":
            with pytest.raises(IntentInFlight):
                repository.prepare(rival)
        else:
            assert repository.prepare(rival).prepared.seq == 2


def test_a_conflict_that_shows_at_commit_is_recognised_there(
    world: World, serializable: sa.Engine, orders: str
) -> None:
    """Write skew: each reads both domains and acts on one of them, so that only one may stand."""
    read = world.fence.observe("p", "q")
    with serializable.connect() as one_connection, serializable.connect() as other_connection:
        for connection, domain in ((one_connection, "p"), (other_connection, "q")):
            repository = FenceRepository(connection, namespace=world.namespace)
            prepared = repository.prepare(world.request(f"act on {domain}", domain=domain, read_set=read)).prepared
            order(connection, orders, domain)
            repository.commit(prepared, "done")
        one_connection.commit()
        with pytest.raises(sa.exc.OperationalError) as refused:
            other_connection.commit()
        assert is_retryable(refused.value)
    assert stored(world.engine, orders) == 1
    assert world.seq("p") == 1
    assert world.seq("q") == 0


def test_what_may_be_run_again_is_recognised_by_its_sqlstate() -> None:
    for error in (psycopg.errors.SerializationFailure(), psycopg.errors.DeadlockDetected()):
        assert is_retryable(error)
        assert is_retryable(sa.exc.OperationalError("x", {}, error))
    for other in (psycopg.errors.UniqueViolation(), psycopg.OperationalError(), ValueError("40001")):
        assert not is_retryable(other)
