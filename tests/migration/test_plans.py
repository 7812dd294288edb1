"""How the hot statements run: by key, whatever the table holds, and without touching an index that others have read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from effectfence_pg import FenceRepository, PreparedEffect
from effectfence_pg.binding import compiled
from effectfence_pg.calls import Calls
from effectfence_pg.pipelining import BY_KEY
from effectfence_pg.protocol.admission import Replace
from effectfence_pg.sql import fencing, preparing, speculation, verbs
from effectfence_pg.sql.gates import SETTLED_BEFORE
from effectfence_pg.sql.operation import Operation
from effectfence_pg.sql.renewal import renew_all
from tests.support.rows import all_of
from tests.support.servers import Databases, libpq_url
from tests.support.speculation import ran
from tests.support.world import World

INTENTS = 3_000
JIT_ABOVE_COST = 100_000
"""The server's default."""

NAMESPACE = "tenant"

FILL = """
INSERT INTO effectfence.domains (namespace, domain_key, domain, seq)
SELECT '{ns}', sha256(convert_to('of:' || n, 'UTF8')), 'of:' || n, 1 FROM generate_series(1, {count}) AS n;
INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
SELECT '{ns}', sha256(convert_to('charge:' || n, 'UTF8')), 'charge:' || n, 1, 1, now() FROM generate_series(1, {count}) AS n;
INSERT INTO effectfence.effects
SELECT (jsonb_populate_record(model, jsonb_build_object(
  'intent', 'charge:' || n, 'domain', 'of:' || n, 'token', gen_random_uuid(),
  'intent_key', '\\x' || encode(sha256(convert_to('charge:' || n, 'UTF8')), 'hex'),
  'domain_key', '\\x' || encode(sha256(convert_to('of:' || n, 'UTF8')), 'hex')))).*
FROM effectfence.effects AS model, generate_series(1, {count}) AS n WHERE model.intent = 'model';
INSERT INTO effectfence.certificates (namespace, hash, intent_key, attempt, body, minted_at, args_digest, identity_digest)
SELECT namespace, encode(sha256(convert_to(intent, 'UTF8')), 'hex'), intent_key, attempt, convert_to(intent, 'UTF8'), now(),
       args_digest, identity_digest
FROM effectfence.effects WHERE intent <> 'model';
INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, from_state, to_state, cause, actor)
SELECT namespace, intent_key, attempt, v, 'in_flight', 'committed', 'committed', agent
FROM effectfence.effects, generate_series(3, 4) AS v WHERE intent <> 'model';
INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
SELECT a.namespace, a.intent_key, 1, b.intent_key, 1, 'observes' FROM effectfence.effects a
JOIN effectfence.effects b ON b.intent = 'charge:' || (substr(a.intent, 8)::int + 1) WHERE a.intent LIKE 'charge:%';
INSERT INTO effectfence.branches (namespace, branch_key, branch, state, version, opened_at)
SELECT '{ns}', sha256(convert_to('plan:' || n, 'UTF8')), 'plan:' || n, 'open', 1, now() FROM generate_series(1, {count}) AS n;
ANALYZE;
"""


@pytest.fixture(scope="module")
def full(databases: Databases, template_database: str) -> Iterator[sa.Engine]:
    """A database with thousands of committed effects, each with a domain, a certificate, transitions and an edge."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    World(engine, NAMESPACE).commit("model")
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(FILL.format(ns=NAMESPACE, count=INTENTS))
    yield engine
    databases.drop(url)


def operations(world: World) -> dict[str, Operation[Any]]:
    """Every statement of a call that somebody waits for, or that many make at once."""
    calls = Calls(world.namespace, None)
    read = world.fence.observe("of:1", "of:2")
    rests = {"read_set": read, "observes": ["charge:3"], "expected_seq": 0}
    ticket: PreparedEffect = world.ticket("charge:7")
    observing = ticket.model_copy(update={"observing": True})
    prepared = {
        "prepare plain": calls.admission(world.request("new")),
        "prepare resting": calls.admission(world.request("new", **rests)),
    }
    judgement = {"evidence": 1, "operator": "o", "basis": None, "over": False, "outcome": "happened", "result": 1}
    return {
        **{name: preparing.prepare(call) for name, call in prepared.items()},
        "prepare of a known intent": preparing.prepare(prepared["prepare plain"], known=True),
        "replay": preparing.replay(prepared["prepare plain"]),
        "prepare reopened": preparing._replace(prepared["prepare resting"], Replace(1, takeover=False)),
        "prepare taken over": preparing._replace(prepared["prepare resting"], Replace(1, takeover=True)),
        "prepare held": preparing._held(prepared["prepare plain"]),
        "commit plain": verbs.commit(ticket, "1", asked=True, member_limit=1000),
        "commit rested": verbs.commit(observing, "1", asked=True, member_limit=1000),
        "commit decided": verbs.commit(observing, "1", asked=False, member_limit=1000),
        "abort": verbs.abort(ticket, "no", no_effect=False),
        "renew": verbs.renew(ticket),
        "renew all": renew_all(world.namespace, [ticket, observing]),
        "fence": fencing.fence_expired(world.namespace, [world.request().intent_key], [1]),
        "reconcile": calls.reconcile("charge:9", attempt=1, **judgement),
        "observe": calls.observe(("of:1", "of:2")),
        "reserve": calls.reserve("of:1", 1),
        "status": calls.status("charge:7"),
        "observe late": calls.observe_late(ticket, read, ("charge:3",)),
        "promote branch": calls.promotion(None, "plan", "o")[1],
        "promote intent": calls.promotion("charge:7", None, "o")[1],
        "abort branch": calls.abort_branch("plan", "no", "o"),
        "abort intent": calls.abort_intent("charge:7", 1, "no", "o"),
        "settle": speculation.settle(world.namespace, [world.request().intent_key], [1]),
        "target": calls.target("charge:7", 1),
    }


CLAIM = "prepare plain"
"""It writes, and reads nothing itself: what is on record is read by a function, where the claim comes back empty."""

NAMES = (
    "prepare plain",
    "prepare resting",
    "prepare of a known intent",
    "replay",
    "prepare reopened",
    "prepare taken over",
    "prepare held",
    "commit plain",
    "commit rested",
    "commit decided",
    "abort",
    "renew",
    "renew all",
    "fence",
    "reconcile",
    "observe",
    "reserve",
    "status",
    "observe late",
    "promote branch",
    "promote intent",
    "abort branch",
    "abort intent",
    "settle",
    "target",
)


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How each table of ours is read, at every level of a plan that can run."""
    if plan.get("One-Time Filter") == "false":
        return
    if plan.get("Schema") == "effectfence" and "Relation Name" in plan and "Scan" in plan["Node Type"]:
        yield plan["Node Type"], plan["Relation Name"]
    for below in plan.get("Plans", ()):
        yield from scans(below)


def explained(engine: sa.Engine, operation: Operation[Any], mode: str) -> dict[str, Any]:
    """The plan of a prepared statement, with or without a look at its parameters."""
    known = compiled(operation.statement)
    values = [sql.Literal(operation.parameters[name]) for name in known.names]
    url = engine.url.render_as_string(hide_password=False)
    with psycopg.connect(libpq_url(url)) as connection:
        connection.execute(f"SET plan_cache_mode = force_{mode}_plan")
        if operation.many:
            connection.execute(BY_KEY)
        connection.execute(b"PREPARE hot AS " + known.text)
        arguments = sql.SQL(", ").join(values)
        explain = sql.SQL("EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE hot ({})").format(arguments)
        [[plan]] = connection.execute(explain).fetchone()
        connection.rollback()
    return plan["Plan"]


@pytest.mark.parametrize("name", NAMES)
def test_a_hot_statement_never_reads_a_whole_table(full: sa.Engine, name: str) -> None:
    """A sequential scan locks the relation for every serializable transaction beside it."""
    operation = operations(World(full, NAMESPACE))[name]
    for mode in ("custom", "generic"):
        found = list(scans(explained(full, operation, mode)))
        assert found or name == CLAIM, "a plan without a table of ours proves nothing"
        assert [scan for scan in found if scan[0] == "Seq Scan"] == []


def test_the_settled_number_of_a_domain_is_found_by_an_index(full: sa.Engine) -> None:
    """The other function, `on_record`, holds the statement that a known intent is looked up with."""
    with psycopg.connect(libpq_url(full.url.render_as_string(hide_password=False))) as connection:
        for mode in ("custom", "generic"):
            connection.execute(f"SET plan_cache_mode = force_{mode}_plan")
            connection.execute(f"PREPARE settled (text, bytea, bigint) AS {SETTLED_BEFORE}")
            [[plan]] = connection.execute("EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE settled ('t', '', 0)").fetchone()
            assert list(scans(plan["Plan"])) == [("Index Scan", "effects")]
            connection.execute("DEALLOCATE settled")


@pytest.fixture(scope="module")
def young(databases: Databases, template_database: str) -> Iterator[sa.Engine]:
    """A database that was just migrated: no rows, and the statistics that a migration leaves."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    yield engine
    databases.drop(url)


def conditions(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """By what each index of ours is searched, at every level of a plan."""
    if plan.get("Schema", "effectfence") == "effectfence" and "Index Name" in plan:
        yield plan["Index Name"], plan.get("Index Cond", "")
    for below in plan.get("Plans", ()):
        yield from conditions(below)


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_that_is_planned_before_there_are_rows_reads_no_more_than_its_keys(
    full: sa.Engine, young: sa.Engine, name: str
) -> None:
    """A prepared statement keeps its plan when the tables grow: by the namespace alone it would read the whole tenant."""
    plan = explained(young, operations(World(full, NAMESPACE))[name], "generic")
    assert [scan for scan in scans(plan) if scan[0] == "Seq Scan"] == []
    assert [found for found in conditions(plan) if "_key" not in found[1] and "hash" not in found[1]] == []


@pytest.fixture(scope="module")
def crowded(databases: Databases, template_database: str) -> Iterator[sa.Engine]:
    """A database of a thousand tenants that have the same few intents, domains and branches."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "model")
    world.commit("one")
    ran(world, "two", branch="plan", domain="of:one")
    ran(world, "three", observes=["one", "two"])
    copy = (
        "INSERT INTO effectfence.{0} SELECT (jsonb_populate_record(t, jsonb_build_object('namespace', 'tenant:' || n))).* "
        "FROM effectfence.{0} t, generate_series(1, 1000) AS n"
    )
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        for table in ("domains", "intents", "branches", "effects", "edges", "transitions", "certificates"):
            connection.execute(sql.SQL(copy).format(sql.Identifier(table)))
        connection.execute("ANALYZE")
    yield engine
    databases.drop(url)


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_among_many_small_tenants_is_not_taken_for_one_that_is_worth_compiling(
    full: sa.Engine, crowded: sa.Engine, name: str
) -> None:
    """In the caller's transaction nothing tells the server not to: it would compile for seconds what runs for milliseconds."""
    operation = operations(World(full, NAMESPACE))[name]
    cost = explained(crowded, replace(operation, many=False), "generic")["Total Cost"]
    assert cost < JIT_ABOVE_COST


def test_every_operation_is_listed(full: sa.Engine) -> None:
    assert set(operations(World(full, NAMESPACE))) == set(NAMES)


def test_the_guard_sees_a_sequential_scan(full: sa.Engine) -> None:
    url = full.url.render_as_string(hide_password=False)
    with psycopg.connect(libpq_url(url)) as connection:
        explain = "EXPLAIN (FORMAT JSON, VERBOSE) SELECT count(*) FROM effectfence.effects WHERE state = 'failed'"
        [[plan]] = connection.execute(explain).fetchone()
    assert ("Seq Scan", "effects") in list(scans(plan["Plan"]))


def live(repository: FenceRepository, world: World) -> None:
    """One of every change that the verbs make to a row, in one transaction."""
    plain = repository.prepare(world.request("plain", domain="order:1")).prepared
    repository.renew(plain)
    repository.commit(plain, "done")
    reader = repository.prepare(world.request("reader", read_set=repository.observe("order:1"))).prepared
    repository.commit(reader, "done")
    failed = repository.prepare(world.request("failed", domain="order:1")).prepared
    repository.abort(failed, "no")
    repository.clear("failed", attempt=1, basis="holder_dead", evidence=1, operator="o")
    again = repository.prepare(world.request("failed", domain="order:1")).prepared
    repository.abort(again, "no")
    repository.commit(again, "late")
    repository.reserve("order:1", repository.current("order:1"))
    taken = repository.prepare(world.request("taken over", on_lease_expiry="takeover", lease_seconds=1e-6))
    assert taken.prepared.attempt == 1
    assert repository.prepare(world.request("taken over")).prepared.attempt == 2


def test_every_change_of_state_is_a_heap_only_update(engine: sa.Engine, world: World) -> None:
    """It writes no index page, so it conflicts with nobody who has read one."""
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        live(FenceRepository(connection, namespace=world.namespace), world)
        counted = connection.execute(
            sa.text(
                "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
                "WHERE schemaname = 'effectfence' AND n_tup_upd > 0"
            )
        ).all()
        connection.rollback()
    assert {row.relname for row in counted} == {"effects", "intents", "domains"}
    assert [row for row in counted if row.n_tup_hot_upd != row.n_tup_upd] == []


def test_no_index_contains_a_column_that_changes(world: World) -> None:
    changed: set[tuple[str, str]] = set()
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    with world.engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:

        def look() -> None:
            for table in ("effects", "intents", "domains"):
                for row in connection.execute(
                    sa.text(f"SELECT * FROM effectfence.{table} WHERE namespace = :n"), {"n": world.namespace}
                ):
                    values = dict(row._mapping)
                    key = (
                        table,
                        values.get("intent"),
                        values.get("domain_key"),
                        values.get("attempt") if table == "effects" else 0,
                    )
                    for column, value in seen.get(key, {}).items():
                        if values[column] != value:
                            changed.add((table, column))
                    seen[key] = values

        repository = FenceRepository(connection, namespace=world.namespace)
        original = repository._execute

        def execute(operation: Operation[Any]) -> Any:
            row = original(operation)
            look()
            return row

        repository._execute = execute  # type: ignore[method-assign]
        live(repository, world)
        connection.rollback()
    indexed = all_of(
        world.engine,
        "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[]) "
        "WHERE c.relnamespace = 'effectfence'::regnamespace",
    )
    assert {("effects", "state"), ("effects", "result"), ("domains", "seq"), ("intents", "attempt")} <= changed
    assert changed & set(indexed) == set()
