"""How operators' reads run on a large record: by index, and never over a whole table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from effectfence_pg.sql import audit
from effectfence_pg.values import MAX_SEQ, key_of
from tests.migration.test_plans import FILL, scans
from tests.support.servers import Databases, libpq_url
from tests.support.world import World

INTENTS = 5_000
WITHIN: dict[str, Any] = {
    "namespace": "tenant",
    "limit": 50,
    "after": key_of("charge:7"),
    "before": MAX_SEQ,
    "states": None,
    "agent": None,
    "domain_key": key_of("of:7"),
    "intent_key": key_of("charge:7"),
    "name": "0" * 64,
    "attempt": 1,
    "soon": 10,
    "hashes": ["0" * 64],
}
READS = {
    "unresolved": (audit.UNRESOLVED, {}),
    "unresolved of all tenants": (audit.UNRESOLVED, {"namespace": None}),
    "how many are unresolved": (audit.UNRESOLVED_COUNT, {}),
    "leases": (audit.LEASES, {}),
    "intents list": (audit.LIST_INTENTS, {}),
    "intents list, first page": (audit.LIST_INTENTS, {"after": b""}),
    "intents list by state": (audit.LIST_INTENTS, {"states": ["failed"], "agent": "nobody"}),
    "intents list of a domain": (audit.LIST_DOMAIN, {}),
    "intents show": (audit.ATTEMPTS, {}),
    "history": (audit.HISTORY, {}),
    "what is blocked": (audit.BLOCKED, {}),
    "a certificate by hash or intent": (audit.FIND_CERTIFICATE, {}),
    "what certificates observed": (audit.OBSERVED, {}),
}


@pytest.fixture(scope="module")
def large(databases: Databases, template_database: str) -> Iterator[str]:
    """Thousands of committed effects and a few that nobody decided."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    world.commit("model")
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(FILL.format(ns="tenant", count=INTENTS))
    for number in range(3):
        world.put("failed", f"unknown:{number}")
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    yield url
    engine.dispose()
    databases.drop(url)


def plan_of(url: str, query: str, parameters: dict[str, Any]) -> dict[str, Any]:
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(audit.QUIET)
        # What is measured at a million rows, and not what a few thousand rows would rather do.
        connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        [[plan]] = connection.execute(f"EXPLAIN (FORMAT JSON, VERBOSE, ANALYZE) {query}", parameters).fetchone()
        connection.rollback()
    return plan["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize("name", READS)
def test_no_read_of_an_operator_scans_a_table(large: str, name: str) -> None:
    query, more = READS[name]
    found = list(scans(plan_of(large, query, {**WITHIN, **more})))
    assert found, "a plan without a table of ours proves nothing"
    assert [scan for scan in found if scan[0] not in {"Index Scan", "Index Only Scan"}] == []


@pytest.mark.parametrize("name", ["unresolved", "unresolved of all tenants", "how many are unresolved", "leases"])
def test_what_is_decided_is_passed_over_by_its_key_and_its_row_is_not_read(large: str, name: str) -> None:
    query, more = READS[name]
    read: dict[str, int] = {}
    for node in nodes(plan_of(large, query, {**WITHIN, **more})):
        if node.get("Schema") == "effectfence":
            if node["Node Type"] != "Index Only Scan":
                read[node["Relation Name"]] = read.get(node["Relation Name"], 0) + node["Actual Loops"]
            assert node.get("Heap Fetches", 0) < INTENTS / 10
    assert set(read) <= {"effects", "edges"}
    assert read["effects"] < INTENTS / 100


@pytest.mark.parametrize("name", ["intents list", "intents list, first page", "intents list of a domain"])
def test_a_page_reads_about_as_many_rows_as_it_shows(large: str, name: str) -> None:
    query, more = READS[name]
    for node in nodes(plan_of(large, query, {**WITHIN, **more})):
        if node.get("Schema") == "effectfence":
            assert node["Actual Rows"] * node["Actual Loops"] <= WITHIN["limit"] + 1


@pytest.mark.parametrize("walk", ["lineage", "dependents"])
def test_a_walk_is_merged_into_the_query_and_looks_up_only_what_is_asked_for(large: str, walk: str) -> None:
    """An option on the function, SECURITY DEFINER above all, would keep the planner from it."""
    found = list(nodes(plan_of(large, f"SELECT depth FROM effectfence.{walk}('tenant', %(name)s)", WITHIN)))
    assert [node for node in found if node["Node Type"] == "Function Scan"] == []
    read = [node["Relation Name"] for node in found if node.get("Schema") == "effectfence"]
    assert sorted(read) == ["certificates", "edges", "effects"]
    named = list(
        nodes(plan_of(large, f"SELECT depth, certificate FROM effectfence.{walk}('tenant', %(name)s)", WITHIN))
    )
    assert len([node for node in named if node.get("Schema") == "effectfence"]) > len(read)
