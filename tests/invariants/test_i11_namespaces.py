"""I11: namespaces never see, block or replay each other. Both hold the same names, in every state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import Fence, FenceError, FenceRepository, Fresh, PreparedEffect, UnknownIntent
from tests.support.rows import all_of
from tests.support.world import STATES, World

Act = Callable[[World, PreparedEffect, str], object]


def judge(outcome: str, **more: Any) -> Act:
    return lambda world, ticket, intent: world.fence.reconcile(
        intent, attempt=ticket.attempt, outcome=outcome, evidence=1, operator="o", **more
    )


VERBS: dict[str, Act] = {
    "prepare": lambda world, _, intent: world.fence.prepare(
        world.request(intent, domain="shared", on_lease_expiry="takeover")
    ),
    "prepare another": lambda world, _, intent: world.fence.prepare(world.request(f"new {intent}", domain="shared")),
    "read": lambda world, _, intent: world.fence.prepare(
        world.request(f"reader {intent}", read_set=[{"domain": "quiet", "seq": world.seq("quiet")}])
    ),
    "observe": lambda world, _, intent: world.fence.prepare(world.request(f"observer {intent}", observes=[intent])),
    "look": lambda world, _, intent: (
        world.fence.observe("shared"),
        world.fence.current("shared"),
        world.fence.status(intent),
    ),
    "reserve": lambda world, *_: world.fence.reserve("shared", world.seq("shared")),
    "commit": lambda world, ticket, _: world.fence.commit(ticket, "theirs"),
    "hold": lambda world, ticket, _: world.fence.commit(ticket, "theirs", closure="hold"),
    "renew": lambda world, ticket, _: world.fence.renew(ticket),
    "abort": lambda world, ticket, _: world.fence.abort(ticket, "theirs"),
    "release": lambda world, ticket, _: world.fence.abort(ticket, "theirs", effect="none"),
    "happened": judge("happened", result="theirs"),
    "over": judge("happened", result="theirs", over=True),
    "did not happen": judge("did_not_happen", basis="holder_dead"),
    "compensated": judge("compensated"),
    "sweep": lambda world, *_: world.fence.sweep(),
}


@pytest.fixture
def other(world: World) -> World:
    return World(world.engine, world.namespace + "-b")


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_of_one_tenant_touches_a_row_of_another(world: World, other: World, verb: str) -> None:
    tickets = {}
    for tested in (world, other):
        tested.commit("quiet", domain="quiet")
    for state in STATES:
        world.put(state, state, domain="shared")
        tickets[state] = other.put(state, state, domain="shared")
    before = world.rows()
    done = 0
    for state, ticket in tickets.items():
        with contextlib.suppress(FenceError):
            VERBS[verb](other, ticket, state)
            done += 1
    assert world.rows() == before
    assert done, "at least one state must let the verb act, or nothing was tested"


def test_what_a_tenant_gets_does_not_depend_on_what_others_hold(world: World, other: World) -> None:
    """The same sequence, alone and beside a tenant that holds every name in every state: the same answers."""
    alone = World(world.engine, world.namespace + "-alone")
    for state in STATES:
        world.put(state, state, domain="shared")

    def outcome(tested: World) -> list[str]:
        said = []
        for state in STATES:
            for act in (
                lambda state: tested.fence.prepare(tested.request(state, domain="shared")),
                lambda state: tested.fence.prepare(tested.request(state, domain="shared", tool="other")),
                lambda state: tested.fence.status(state).state,
                lambda _: tested.fence.current("shared"),
            ):
                try:
                    answer = act(state)
                    said.append(str(answer.prepared.seq) if isinstance(answer, Fresh) else str(answer))
                except FenceError as refused:
                    said.append(refused.code)
        return said

    assert outcome(other) == outcome(alone)


def test_the_cascade_of_one_tenant_stops_at_its_border(world: World, other: World) -> None:
    for tested in (world, other):
        tested.hold("base", domain="shared")
        tested.admit("reader", observes=["base"], domain="shared")
    other.fence.abort(other.ticket("base"), "rolled back")
    assert (other.state("base"), other.state("reader")) == ("aborted", "aborted")
    assert (world.state("base"), world.state("reader")) == ("executed", "in_flight")


def test_an_open_transaction_of_one_tenant_blocks_no_other(world: World, other: World) -> None:
    """It holds the locks of its own intent and domain, which have the same names."""
    with (
        ThreadPoolExecutor(1) as pool,
        world.engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection,
    ):
        FenceRepository(connection, namespace=world.namespace).prepare(world.request("charge:1", domain="shared"))
        theirs = pool.submit(lambda: other.commit("charge:1", domain="shared"))
        # The transaction ends before the pool waits for its thread: who is blocked fails here and does not hang.
        assert theirs.result(timeout=20).seq == 1
        connection.rollback()


def test_a_sweep_is_for_the_own_namespace(world: World, other: World) -> None:
    world.put("expired")
    assert other.fence.sweep() == 0
    assert world.state() == "in_flight"
    assert world.fence.sweep() == 1


def test_stats_are_of_the_fence_and_status_of_the_namespace(world: World, other: World) -> None:
    world.commit()
    with pytest.raises(UnknownIntent):
        other.fence.status("charge:1")
    assert Fence(world.engine, namespace=other.namespace).stats().total_attempts == 0


def test_the_namespace_leads_every_key_and_every_index(engine: sa.Engine) -> None:
    leading = all_of(
        engine,
        "SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, a.attname FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace s ON s.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE s.nspname = 'effectfence' AND c.relname <> 'alembic_version'",
    )
    assert len(leading) >= 8
    assert [row for row in leading if row[2] != "namespace"] == []
    foreign = all_of(
        engine,
        "SELECT f.conname, a.attname, b.attname FROM pg_constraint f "
        "JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1] "
        "JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = f.confkey[1] "
        "JOIN pg_namespace s ON s.oid = f.connamespace WHERE f.contype = 'f' AND s.nspname = 'effectfence'",
    )
    assert foreign
    assert [row for row in foreign if row[1:] != ("namespace", "namespace")] == []
