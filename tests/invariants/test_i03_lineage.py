"""I3: a parent is a certificate of the same namespace; no cycle in lineage or edges; clocks go up along edges."""

from __future__ import annotations

import pytest
from psycopg.errors import ForeignKeyViolation

from effectfence_pg import Fence, FenceError, UnknownParent
from tests.support.rows import all_of, one
from tests.support.world import World

ROUNDS = """
WITH RECURSIVE walk AS (
  SELECT namespace, intent_key AS origin, attempt AS origin_attempt, observed_key, observed_attempt, 1 AS steps
  FROM effectfence.edges WHERE namespace = :n
  UNION
  SELECT walk.namespace, origin, origin_attempt, e.observed_key, e.observed_attempt, steps + 1
  FROM walk JOIN effectfence.edges e ON e.namespace = walk.namespace
   AND e.intent_key = walk.observed_key AND e.attempt = walk.observed_attempt
  WHERE steps < 50)
SELECT count(*) FROM walk WHERE origin = observed_key AND origin_attempt = observed_attempt"""

AUDIT = """
SELECT intent FROM effectfence.certificate_audit
WHERE namespace = :n AND NOT (hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds)"""


def grow(world: World) -> None:
    """A small lineage: certificates with parents, readers of several domains, dependents of held effects."""
    parent = None
    for n in range(4):
        parent = world.commit(f"root:{n}", domain=f"d:{n % 2}", parent=parent, agent=f"agent-{n % 3}").hash
    base = world.hold("held", domain="d:0", agent="agent-h")
    reader = world.admit(
        "reader", read_set=world.fence.observe("d:0", "d:1"), observes=["root:1"], parent=parent, agent="agent-r"
    )
    world.fence.commit(reader, "done", closure="hold")
    world.fence.commit(base, "done")
    world.fence.commit(reader, "done")
    world.commit("last", observes=["reader", "held"], agent="agent-r")


def test_lineage_and_edges_have_no_cycle_and_every_certificate_holds(world: World) -> None:
    grow(world)
    assert one(world.engine, ROUNDS, n=world.namespace) == 0
    assert all_of(world.engine, AUDIT, n=world.namespace) == []
    assert (
        one(world.engine, "SELECT count(*) FROM effectfence.certificates WHERE namespace = :n", n=world.namespace) == 7
    )


def test_clocks_go_up_along_every_edge(world: World) -> None:
    grow(world)
    for intent in ("root:1", "root:3", "reader", "last"):
        later = world.ticket(intent).vector_clock
        for observed, _, _ in world.edges(intent):
            earlier = world.ticket(observed).vector_clock
            assert earlier.le(later)
            assert not later.le(earlier)


def test_an_effect_that_is_not_decided_cannot_be_observed_and_so_closes_no_cycle(world: World) -> None:
    first = world.admit("first")
    for request in (world.request("second", observes=["first"]), world.request("first", observes=["first"])):
        with pytest.raises(FenceError):
            world.fence.prepare(request)
    world.fence.commit(first, "done")
    world.commit("second", observes=["first"])
    assert one(world.engine, ROUNDS, n=world.namespace) == 0


def test_a_parent_of_another_namespace_is_kept_out_by_the_fence_and_by_the_database(world: World) -> None:
    other = Fence(world.engine, namespace=world.namespace + "-b")
    parent = world.commit("base").hash
    with pytest.raises(UnknownParent):
        other.prepare(world.request(parent=parent))
    foreign = World(world.engine, world.namespace + "-b").commit("theirs").hash
    prepared = world.admit("child", parent=parent)
    world.edit("child", parent=foreign)
    with pytest.raises(ForeignKeyViolation, match="fk_certificates_parent"):
        world.fence.commit(prepared, "done")


@pytest.mark.parametrize("claim", ["clock_holds", "edges_hold", "columns_hold"])
def test_the_audit_sees_what_was_tampered_with(world: World, claim: str) -> None:
    grow(world)
    column, value = {
        "clock_holds": ("vector_clock", '{"agent-r":1}'),
        "edges_hold": ("read_keys", "{}"),
        "columns_hold": ("tool", "refund"),
    }[claim]
    with world.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql(
            f"UPDATE effectfence.effects SET {column} = %s WHERE namespace = %s AND intent = 'reader'",
            (value, world.namespace),
        )
    query = f"SELECT intent FROM effectfence.certificate_audit WHERE namespace = :n AND NOT {claim}"
    assert "reader" in all_of(world.engine, query, n=world.namespace)
