"""Decisions in the caller's own transaction: they stand or fall with it, and a weaker isolation decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    Committed,
    EffectCert,
    FenceRepository,
    Fresh,
    Held,
    IsolationTooWeak,
    Pending,
    Settled,
    UnknownBranch,
)
from tests.support.rows import all_of
from tests.support.speculation import UNDO, branch_state, broken, decided, ran, states
from tests.support.world import World


@pytest.fixture
def serializable(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(isolation_level="SERIALIZABLE")


def a_world_to_decide_about(world: World) -> Any:
    """Something for every decision to change; the ticket of an effect in flight."""
    ran(world, "member", branch="plan", compensation=UNDO)
    decided(world, "free")
    world.put("expired", "slow")
    world.put("failed", "fallen", compensation=UNDO)
    return world.admit("running")


DECISIONS: dict[str, Callable[[FenceRepository, Any], object]] = {
    "promote a branch": lambda r, _: r.promote(branch="plan"),
    "promote an intent": lambda r, _: r.promote(intent="free"),
    "reconcile a branch": lambda r, _: r.reconcile_branch("plan"),
    "abort a branch": lambda r, _: r.abort_branch("plan", "contradicted"),
    "abort an intent": lambda r, _: r.abort_intent("free", attempt=1, reason="contradicted"),
    "settle": lambda r, _: r.settle(),
    "observe late": lambda r, ticket: r.observe_late(ticket, (), ("free",)),
    "compensate": lambda r, _: r.prepare_compensation("fallen", attempt=1, agent="undoer"),
    "commit and promote": lambda r, ticket: r.commit(ticket, "done", closure="promote"),
}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "AUTOCOMMIT"])
@pytest.mark.parametrize("decision", DECISIONS)
def test_a_weaker_isolation_is_refused_and_nothing_is_written(world: World, decision: str, level: str) -> None:
    ticket = a_world_to_decide_about(world)
    before = world.rows()
    with world.engine.connect().execution_options(isolation_level=level) as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        with pytest.raises(IsolationTooWeak):
            DECISIONS[decision](repository, ticket)
        connection.commit()
    assert world.rows() == before


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_is_undone_with_the_callers_transaction(
    world: World, serializable: sa.Engine, decision: str
) -> None:
    ticket = a_world_to_decide_about(world)

    def columns() -> dict[str, list[tuple[Any, ...]]]:
        # An insert that was rolled back leaves its mark on the row that it met.
        return {table: [row[3:] for row in found] for table, found in world.rows().items()}

    before = columns()
    with serializable.connect() as connection:
        DECISIONS[decision](FenceRepository(connection, namespace=world.namespace), ticket)
        connection.rollback()
    assert columns() == before
    with serializable.begin() as connection:
        DECISIONS[decision](FenceRepository(connection, namespace=world.namespace), ticket)
    assert columns() != before
    assert broken(world.engine, world.namespace) == []


def test_a_whole_plan_is_prepared_run_and_decided_in_one_transaction(world: World, serializable: sa.Engine) -> None:
    with serializable.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        for intent, observes in (("first", ()), ("second", ("first",))):
            verdict = repository.prepare(world.request(intent, branch="plan", observes=observes))
            assert isinstance(verdict, Fresh)
            assert isinstance(repository.reconcile_branch("plan"), Pending)
            assert isinstance(repository.commit(verdict.prepared, "done"), Held)
        assert repository.promote(branch="plan") == Committed(branch="plan", effects=2)
        assert isinstance(repository.commit(verdict.prepared, "done"), EffectCert)
        assert repository.settle() == Settled()
        with pytest.raises(UnknownBranch):
            repository.abort_branch("nothing", "r")
    assert states(world, "first", "second") == {"first": "committed", "second": "committed"}
    assert branch_state(world, "plan")[0] == "committed"
    clocks = "SELECT clock_holds FROM effectfence.certificate_audit WHERE namespace = :n"
    assert all_of(world.engine, clocks, n=world.namespace) == [True, True]


def test_what_fell_is_undone_in_the_same_transaction(world: World, serializable: sa.Engine) -> None:
    """An undo that lives in the same database: the rollback and what undoes it, or neither."""
    ran(world, "member", branch="plan", compensation=UNDO)
    with serializable.begin() as connection:
        repository = FenceRepository(connection, namespace=world.namespace)
        effects = repository.abort_branch("plan", "contradicted").effects
        [certificate] = repository.compensate(effects, lambda ticket: ticket.args, agent="undoer")
    assert certificate == world.status(certificate.intent).certificate
    assert world.moves("member")[-2:] == [
        ("executed", "aborted", "branch_aborted"),
        ("aborted", "released", "compensated"),
    ]
