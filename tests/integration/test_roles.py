"""The application's role runs the whole protocol and can rewrite nothing; an auditor reads views and no table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.exc import DBAPIError

from effectfence_pg import Fence, FenceConfig, PermissionDenied
from effectfence_pg.binding import compiled
from effectfence_pg.sql.roles_ddl import ROLES
from tests.migration.test_plans import NAMES, operations
from tests.support.roles import acting_as, url_as
from tests.support.rows import all_of, one
from tests.support.world import STATES, World

TABLES = ("certificates", "transitions", "edges", "effects", "intents", "domains", "branches")


@pytest.fixture
def app(engine: sa.Engine) -> Iterator[sa.Engine]:
    with acting_as(engine, "effectfence_app") as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_of_the_protocol_is_permitted_to_the_application(app: sa.Engine, name: str) -> None:
    """An EXPLAIN checks every right that an execution checks, of branches that do not run as well."""
    world = World(app, "roles")
    if one(app, "SELECT count(*) FROM effectfence.intents WHERE namespace = 'roles'") == 0:
        for number in (1, 2, 3, 7):
            world.commit(f"charge:{number}")
    operation = operations(world)[name]
    known = compiled(operation.statement)
    values = sql.SQL(", ").join(sql.Literal(operation.parameters[name]) for name in known.names)
    with app.connect() as connection:
        driver = connection.connection.driver_connection
        driver.execute("SET plan_cache_mode = force_generic_plan")
        driver.execute(b"PREPARE hot AS " + known.text)
        explain = sql.SQL("EXPLAIN EXECUTE hot ({})").format(values)
        assert driver.execute(explain if known.names else "EXPLAIN EXECUTE hot").fetchall()
        driver.rollback()
        driver.execute("DEALLOCATE hot")
        driver.commit()


def test_the_application_runs_the_whole_protocol(app: sa.Engine, namespace: str) -> None:
    world = World(app, namespace)
    assert one(app, "SELECT current_user || ' ' || current_setting('is_superuser')") == "effectfence_app off"
    for state in STATES:
        world.put(state, state)
    parent = world.commit("parent")
    child = world.commit("child", parent=parent.hash, read_set=world.fence.observe("of:parent"))
    assert child.verify()
    late = world.admit("late")
    late = world.fence.observe_late(late, world.fence.observe("of:parent"), ("child",))
    world.fence.renew(late)
    world.fence.commit(late, 1)
    planned = world.admit("planned", branch="plan", compensation={"tool": "undo", "args": {}})
    world.fence.commit(planned, 1)
    fallen = world.fence.abort_branch("plan", "no")
    assert world.fence.compensate(fallen.effects, lambda _: "undone", agent="undoer")[0].verify()
    kept = world.admit("kept", branch="other")
    world.fence.commit(kept, 1)
    world.fence.promote(branch="other")
    world.fence.reserve("free", world.fence.current("free"))
    world.fence.sweep()
    world.fence.settle()
    world.fence.clear("failed", attempt=1, basis="holder_dead", evidence=1, operator="o")
    world.fence.reconcile("expired", attempt=1, outcome="happened", result=1, evidence=1, operator="o")
    assert world.state("failed") == "released"
    assert world.state("expired") == "committed"


def test_a_fence_of_its_own_engine_works_for_the_application(engine: sa.Engine, namespace: str) -> None:
    with Fence(url_as(engine, "effectfence_app"), namespace=namespace) as fence:
        admission = fence.prepare({"intent": "i", "domain": "d", "tool": "t", "agent": "a"})
        assert fence.commit(admission.prepared, 1).verify()


@pytest.mark.parametrize("role", ["effectfence_app", "effectfence_operator"])
def test_nobody_who_acts_can_rewrite_history(engine: sa.Engine, world: World, role: str) -> None:
    parent = world.commit("base")
    world.commit(parent=parent.hash)
    before = world.rows()
    attempts = [f"DELETE FROM effectfence.{table}" for table in TABLES]
    attempts += [f"TRUNCATE effectfence.{table} CASCADE" for table in TABLES]
    attempts += [f"ALTER TABLE effectfence.{table} DISABLE TRIGGER ALL" for table in TABLES]
    attempts += [
        "UPDATE effectfence.certificates SET minted_at = now()",
        "UPDATE effectfence.transitions SET actor = 'mallory'",
        "UPDATE effectfence.edges SET via = 'parent'",
        "UPDATE effectfence.effects SET args = '{}'",
        "UPDATE effectfence.effects SET agent = 'mallory'",
        "UPDATE effectfence.effects SET token = gen_random_uuid()",
        "UPDATE effectfence.intents SET intent = 'mine'",
        "UPDATE effectfence.domains SET domain = 'mine'",
        "CREATE TABLE effectfence.mine (a int)",
        "SELECT effectfence.prune('0')",
        "SELECT effectfence.isolate_namespaces(false)",
        "SELECT effectfence.grant_roles()",
        "SELECT set_config('session_replication_role', 'replica', false)",
    ]
    with acting_as(engine, role) as acting:
        for statement in attempts:
            with acting.begin() as connection, pytest.raises(DBAPIError) as refused:
                connection.exec_driver_sql(statement)
            assert refused.value.orig.sqlstate == "42501", statement
    assert world.rows() == before


def test_an_auditor_reads_every_view_and_walks_and_sees_no_table(engine: sa.Engine, world: World) -> None:
    parent = world.commit("base")
    child = world.commit(parent=parent.hash)
    views = all_of(engine, "SELECT viewname FROM pg_views WHERE schemaname = 'effectfence'")
    assert len(views) == 7
    with acting_as(engine, "effectfence_auditor") as acting:
        for view in views:
            assert one(acting, f"SELECT count(*) FROM effectfence.{view} WHERE namespace = '{world.namespace}'") >= 0
        for walk, hash_ in (("lineage", child.hash), ("dependents", parent.hash)):
            walked = f"SELECT count(*) FROM effectfence.{walk}('{world.namespace}', '{hash_}')"
            assert one(acting, walked) == 2
        held = "SELECT bool_and(hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds AND closure_holds "
        held += "AND record_holds) FROM effectfence.certificate_audit WHERE namespace = :namespace"
        assert one(acting, held, namespace=world.namespace) is True
        for table in TABLES:
            with acting.begin() as connection, pytest.raises(DBAPIError) as refused:
                connection.exec_driver_sql(f"SELECT FROM effectfence.{table}")
            assert refused.value.orig.sqlstate == "42501"


def test_a_role_without_the_right_is_told_so_in_one_typed_error(engine: sa.Engine, namespace: str) -> None:
    with acting_as(engine, "effectfence_auditor") as acting:
        world = World(acting, namespace)
        with pytest.raises(PermissionDenied) as refused:
            world.admit()
    assert "permission denied" in refused.value.reason
    assert not refused.value.retryable
    # Whoever reads it, an application, an operator or an auditor, finds the name of what is missing.
    assert all(role in refused.value.advice for role in ROLES)
    assert "row_security" in refused.value.advice
    assert "row_security" in FenceConfig.model_fields


@pytest.mark.parametrize("role", ["effectfence_app", "effectfence_operator"])
def test_nobody_who_acts_can_make_a_committed_effect_run_again(engine: sa.Engine, world: World, role: str) -> None:
    world.commit()
    before = world.effect("charge:1")
    with acting_as(engine, role) as acting:
        for change in ("state = 'released'", "result = '1'", "read_set = '[]'", "version = version + 1"):
            edit = sa.text(f"UPDATE effectfence.effects SET {change} WHERE namespace = :namespace")
            with acting.connect() as connection, pytest.raises(DBAPIError, match="rows are kept"):
                connection.execute(edit, {"namespace": world.namespace})
    assert world.effect("charge:1") == before
    assert world.fence.prepare(world.request()).replayed
