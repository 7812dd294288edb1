"""What an auditor and an operator read in SQL: lineage both ways, what is unresolved, and who did what."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import LeaseLost
from tests.support.rows import all_of, change, one
from tests.support.world import STATES, World


def walk(world: World, function: str, hash_: str) -> list[Any]:
    with world.engine.connect() as connection:
        return list(
            connection.execute(
                sa.text(f"SELECT * FROM effectfence.{function}(:namespace, :hash) ORDER BY depth, intent, attempt"),
                {"namespace": world.namespace, "hash": hash_},
            )
        )


def diamond(world: World) -> dict[str, str]:
    """quote <- config, config <- plan, quote and plan <- charge: two ways to the quote."""
    hashes = {"quote": world.commit("quote").hash}
    hashes["config"] = world.commit("config", parent=hashes["quote"]).hash
    hashes["plan"] = world.commit("plan", read_set=world.fence.observe("of:config")).hash
    hashes["charge"] = world.commit("charge", parent=hashes["plan"], observes=("quote",)).hash
    return hashes


def test_lineage_names_everything_a_certificate_rests_on_with_depth_and_path(world: World) -> None:
    hashes = diamond(world)
    rows = walk(world, "lineage", hashes["charge"])
    assert [(row.depth, row.intent, row.via, row.through) for row in rows] == [
        (0, "charge", None, None),
        (1, "plan", "parent", "charge"),
        (1, "quote", "observes", "charge"),
        (2, "config", "read_set", "plan"),
    ]
    assert {row.intent: row.certificate for row in rows} == hashes
    assert rows[-1].path == ["charge", "plan", "config"]


def test_dependents_are_the_same_edges_from_the_other_end_and_name_what_is_undecided(world: World) -> None:
    hashes = diamond(world)
    world.admit("refund", observes=("charge",))
    rows = walk(world, "dependents", hashes["quote"])
    assert [(row.depth, row.intent) for row in rows] == [
        (0, "quote"),
        (1, "charge"),
        (1, "config"),
        (2, "plan"),
        (2, "refund"),
    ]
    assert [(row.state, row.certificate) for row in rows if row.intent == "refund"] == [("in_flight", None)]
    assert rows[-1].path == ["quote", "charge", "refund"]


def test_a_ladder_of_diamonds_is_walked_once_and_not_once_for_every_path(world: World) -> None:
    """2 to the 40th paths: whoever enumerates them does not come back."""
    newest = [world.commit("0a").intent, world.commit("0b").intent]
    for step in range(1, 40):
        newest = [world.commit(f"{step}{side}", observes=tuple(newest)).intent for side in "ab"]
    last = world.commit("last", observes=tuple(newest))
    rows = walk(world, "lineage", last.hash)
    assert len(rows) == 81
    assert max(row.depth for row in rows) == 40
    assert [row.path for row in rows if row.depth > 32] == [None] * 16
    shown = [row for row in rows if row.depth == 32]
    assert [(len(row.path), row.path[0], row.path[-1]) for row in shown] == [(33, "last", row.intent) for row in shown]


def test_a_certificate_of_another_tenant_has_no_lineage_here(world: World) -> None:
    other = World(world.engine, f"{world.namespace}-other")
    assert walk(world, "lineage", other.commit("theirs").hash) == []


def test_unresolved_names_everything_dispatched_and_not_decided_and_nothing_else(world: World) -> None:
    for state in STATES:
        world.put(state, state)
    rows = all_of(
        world.engine,
        "SELECT intent, attempt, state FROM effectfence.unresolved WHERE namespace = :namespace ORDER BY intent",
        namespace=world.namespace,
    )
    undecided = all_of(
        world.engine,
        "SELECT intent, attempt, state FROM effectfence.effects WHERE namespace = :namespace "
        "AND state IN ('in_flight', 'executed', 'failed', 'aborted') ORDER BY intent",
        namespace=world.namespace,
    )
    assert rows == undecided
    assert {"in_flight", "expired", "executed", "failed", "aborted", "aborted_in_flight"} <= {row[0] for row in rows}


def test_unresolved_says_who_holds_it_since_when_and_what_it_blocks(world: World) -> None:
    held = world.hold("write", agent="agent-w")
    reader = world.admit("read", observes=("write",), agent="agent-r")
    world.fence.renew(reader)
    query = (
        "SELECT holder, blocks, last_renewal IS NOT NULL AS renewed, lease_live, unsettles_domain, has_result, "
        "age >= interval '0' AS aged FROM effectfence.unresolved WHERE namespace = :namespace AND intent = :intent"
    )
    [write] = all_of(world.engine, query, namespace=world.namespace, intent=held.intent)
    assert write == ("agent-w", ["read"], False, False, False, True, True)
    [read] = all_of(world.engine, query, namespace=world.namespace, intent="read")
    assert read == ("agent-r", [], True, True, True, False, True)


def test_attempts_show_starts_completions_late_evidence_and_causes(world: World) -> None:
    ticket = world.put("failed")
    world.fence.clear("charge:1", attempt=1, basis="holder_dead", evidence="log", operator="olga")
    world.commit()
    with pytest.raises(LeaseLost):
        world.fence.commit(ticket, "it did run")
    world.admit("open")
    query = (
        "SELECT intent, attempt, state, causes, actors, late_evidence, completed_at IS NULL, certificate IS NOT NULL "
        "FROM effectfence.attempts WHERE namespace = :namespace ORDER BY intent, attempt"
    )
    assert all_of(world.engine, query, namespace=world.namespace) == [
        (
            "charge:1",
            1,
            "released",
            ["admitted", "outcome_unknown", "reconciled_did_not_happen", "late_evidence"],
            ["agent-a", "agent-a", "olga", "agent-a"],
            1,
            False,
            False,
        ),
        ("charge:1", 2, "committed", ["admitted", "committed"], ["agent-a", "agent-a"], 0, False, True),
        ("open", 1, "in_flight", ["admitted"], ["agent-a"], 0, True, False),
    ]


def test_the_history_of_a_domain_is_its_numbers_in_order_with_gaps_where_exits_took_one(world: World) -> None:
    world.commit("first", domain="order:1")
    world.put("failed", "second", domain="order:1")
    world.commit("third", domain="order:1")
    query = (
        "SELECT seq, intent, state, live_seq FROM effectfence.domain_history "
        "WHERE namespace = :namespace AND domain = 'order:1' ORDER BY seq"
    )
    assert all_of(world.engine, query, namespace=world.namespace) == [
        (1, "first", "committed", 4),
        (2, "second", "failed", 4),
        (4, "third", "committed", 4),
    ]


def test_a_cycle_that_somebody_wrote_by_hand_ends_the_walk_all_the_same(world: World) -> None:
    first = world.commit("first")
    second = world.commit("second", parent=first.hash)
    change(
        world.engine,
        "INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via) "
        "SELECT namespace, observed_key, observed_attempt, intent_key, attempt, 'observes' FROM effectfence.edges "
        "WHERE namespace = :namespace",
        namespace=world.namespace,
    )
    assert [row.intent for row in walk(world, "lineage", second.hash)] == ["second", "first"]
    bad = "SELECT count(*) FROM effectfence.certificate_audit WHERE namespace = :namespace AND NOT clock_holds"
    assert one(world.engine, bad, namespace=world.namespace) == 1
