"""Retention takes what nobody needs any more, and only when it is asked: never a certificate, a replay or a doubt."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from effectfence_pg import LeaseLost, Replay
from tests.support.rows import all_of, change, one
from tests.support.world import STATES, World

KEPT = ("in_flight", "executed", "failed", "aborted")


@pytest.fixture
def old(migrated_database: str) -> Any:
    """One intent in every state and one with late evidence, all of it long ago."""
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    for state in STATES:
        world.put(state, state)
    ticket = world.put("failed", "late")
    world.fence.clear("late", attempt=1, basis="holder_dead", evidence=1, operator="o")
    world.commit("late")
    with pytest.raises(LeaseLost):
        world.fence.commit(ticket, "it ran after all")
    world.put("aborted", "compensated")
    world.fence.reconcile("compensated", attempt=1, outcome="compensated", evidence="refund", operator="o")
    yield world
    engine.dispose()


def prune(world: World, older_than: str = "0", batch: int = 1000) -> tuple[int, int, int]:
    with world.engine.begin() as connection:
        return tuple(
            connection.execute(
                sa.text("SELECT * FROM effectfence.prune(CAST(:older AS interval), :batch)"),
                {"older": older_than, "batch": batch},
            ).one()
        )


def left(world: World) -> list[str]:
    return all_of(
        world.engine,
        "SELECT DISTINCT i.intent FROM effectfence.transitions t JOIN effectfence.intents i USING (namespace, intent_key) "
        "ORDER BY 1",
    )


def test_what_is_undecided_and_late_evidence_outlive_everything(old: World) -> None:
    undecided = all_of(old.engine, "SELECT intent FROM effectfence.unresolved ORDER BY 1")
    counts = {table: len(rows) for table, rows in old.rows().items()}
    intents, transitions, results = prune(old)
    assert (intents > 0, transitions > 0, results) == (True, True, 1)
    assert left(old) == sorted({*undecided, "late"})
    assert all_of(old.engine, "SELECT intent FROM effectfence.unresolved ORDER BY 1") == undecided
    after = {table: len(rows) for table, rows in old.rows().items()}
    assert {table for table in counts if counts[table] != after[table]} == {"transitions"}
    assert prune(old) == (0, 0, 0)


def test_a_replay_a_released_intent_and_the_audit_are_as_before(old: World) -> None:
    certificate = old.status("committed").certificate
    prune(old)
    replay = old.fence.prepare(old.request("committed"))
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate
    assert old.admit("released").attempt == 2
    assert old.admit("compensated").attempt == 2
    bad = "SELECT count(*) FROM effectfence.certificate_audit WHERE NOT (hash_holds AND columns_hold AND record_holds)"
    assert one(old.engine, bad) == 0


def test_what_is_younger_is_kept(old: World) -> None:
    before = old.rows()
    assert prune(old, "1 day") == (0, 0, 0)
    assert old.rows() == before


def test_it_goes_batch_by_batch_and_each_is_a_transaction_of_its_own(old: World) -> None:
    settled = 0
    while (done := prune(old, batch=1))[0]:
        assert done[0] == 1
        settled += 1
    assert settled == 3  # committed, released and compensated; the superseded one has an attempt in flight
    assert set(left(old)) >= {"late", "failed", "executed"}


def test_a_batch_that_is_killed_in_the_middle_leaves_everything_as_it_was(old: World) -> None:
    before = {table: [row[3:] for row in rows] for table, rows in old.rows().items()}
    with old.engine.connect() as connection:
        connection.execute(sa.text("SELECT * FROM effectfence.prune('0')"))
        pid = connection.scalar(sa.text("SELECT pg_backend_pid()"))
        change(old.engine, "SELECT pg_terminate_backend(:pid, 10000)", pid=pid)
        with pytest.raises(DBAPIError):
            connection.execute(sa.text("SELECT 1"))
    assert {table: [row[3:] for row in rows] for table, rows in old.rows().items()} == before


def test_the_trigger_lets_nobody_else_through_not_even_in_the_same_transaction(old: World) -> None:
    removal = "DELETE FROM effectfence.transitions"
    for before in ("SELECT effectfence.prune('0')", "SELECT set_config('effectfence.pruning', '1', true)"):
        with old.engine.begin() as connection:
            connection.exec_driver_sql(before)
            with pytest.raises(DBAPIError, match="is refused"):
                connection.exec_driver_sql(removal)
            connection.rollback()


def test_what_makes_no_sense_is_refused(old: World) -> None:
    before = old.rows()
    for arguments in ("NULL", "'-1 day'", "'0', 0", "'0', NULL"):
        with old.engine.begin() as connection, pytest.raises(DBAPIError) as refused:
            connection.exec_driver_sql(f"SELECT effectfence.prune({arguments})")
        assert refused.value.orig.sqlstate == "22023", arguments
    assert old.rows() == before
