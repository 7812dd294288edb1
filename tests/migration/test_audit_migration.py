"""The revision that adds what auditors read: over a database with data, back again, and with roles of the whole cluster."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import migrate
from effectfence_pg.embedded import private_server
from effectfence_pg.sql.roles_ddl import ROLES
from effectfence_pg.sql.tables import metadata
from tests.support.catalogue import catalogue
from tests.support.roles import acting_as
from tests.support.rows import all_of, one
from tests.support.servers import Databases
from tests.support.world import World

Rows = dict[str, list[tuple[Any, ...]]]


def stored(engine: sa.Engine) -> Rows:
    with engine.connect() as connection:
        return {
            table.name: sorted(
                map(tuple, connection.execute(sa.text(f"SELECT * FROM effectfence.{table.name}"))), key=str
            )
            for table in metadata.sorted_tables
        }


def test_an_upgrade_and_a_downgrade_keep_every_row_and_leave_the_schema_of_the_revision(
    databases: Databases, migrated_database: str
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    parent = world.commit("parent")
    world.commit("child", parent=parent.hash, read_set=world.fence.observe("of:parent"))
    world.put("failed", "unknown")
    before, newest = stored(engine), catalogue(engine)
    for revision in ("0002", "0001"):
        migrate.downgrade(migrated_database, f"effectfence@{revision}")
        older = databases.create()
        migrate.upgrade(older, f"effectfence@{revision}")
        assert catalogue(engine) == catalogue(sa.create_engine(older, poolclass=sa.NullPool))
        databases.drop(older)
        assert all_of(engine, "SELECT intent FROM effectfence.unresolved") == ["unknown"]
        # What 0003 keeps beside a certificate is its effect's: it goes with the columns, and is there again below.
        assert stored(engine) == before | {"certificates": [row[:-3] for row in before["certificates"]]}
    migrate.upgrade(migrated_database)
    assert catalogue(engine) == newest
    assert stored(engine) == before
    assert all_of(engine, "SELECT intent FROM effectfence.unresolved") == ["unknown"]
    assert one(engine, "SELECT count(*) FROM effectfence.certificate_audit WHERE columns_hold AND edges_hold") == 2


def test_a_downgrade_leaves_the_roles_to_the_other_databases(
    databases: Databases, template_database: str, migrated_database: str
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    other = databases.create(template_database)
    migrate.downgrade(other)
    assert one(engine, "SELECT count(*) FROM pg_roles WHERE rolname = ANY (:names)", names=list(ROLES)) == len(ROLES)
    granted = "SELECT has_table_privilege('effectfence_auditor', 'effectfence.certificate_audit', 'SELECT')"
    assert one(engine, granted) is True
    databases.drop(other)


def test_an_owner_who_may_not_create_roles_migrates_and_is_told_what_to_run(databases: Databases) -> None:
    """Whatever roles there are: the function says which it granted, and an ordinary owner is never stopped by it."""
    url = databases.create()
    name = sa.make_url(url).database
    with databases._admin() as connection:
        connection.execute(f'CREATE ROLE "owner_of_{name}"')
        connection.execute(f'ALTER DATABASE "{name}" OWNER TO "owner_of_{name}"')
    owner = sa.make_url(url).update_query_dict({"options": f"-c role=owner_of_{name}"})
    engine = sa.create_engine(owner, poolclass=sa.NullPool)
    try:
        migrate.upgrade(owner)
        notices: list[str] = []
        with engine.begin() as connection:
            raw = connection.connection.driver_connection
            raw.add_notice_handler(lambda notice: notices.append(notice.message_primary))
            given = connection.scalar(sa.text("SELECT effectfence.grant_roles()"))
        missing = {role for role in ROLES if role not in given}
        assert missing == {role for role in ROLES if any(role in notice for notice in notices)}
        assert all("CREATE ROLE" in notice and "grant_roles()" in notice for notice in notices if "was not" in notice)
    finally:
        engine.dispose()
        databases.drop(url)
        with databases._admin() as connection:
            connection.execute(f'DROP ROLE "owner_of_{name}"')


def test_roles_that_nobody_could_create_come_later_and_go_with_the_last_database_that_uses_them() -> None:
    with private_server(temporary=True) as server:
        admin = sa.create_engine(server.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.exec_driver_sql("CREATE ROLE owner")
            connection.exec_driver_sql("CREATE DATABASE ours OWNER owner")
        ours = sa.make_url(server.url).set(database="ours")
        owner = sa.create_engine(ours.update_query_dict({"options": "-c role=owner"}), poolclass=sa.NullPool)
        known = "SELECT array_agg(rolname::text ORDER BY rolname) FROM pg_roles WHERE rolname LIKE 'effectfence\\_%'"
        migrate.upgrade(owner.url)
        assert one(admin, known) is None
        World(owner, "tenant").commit()
        with admin.connect() as connection:
            for role in ROLES:
                connection.exec_driver_sql(f"CREATE ROLE {role}")
        with owner.begin() as connection:
            assert connection.scalar(sa.text("SELECT effectfence.grant_roles()")) == list(ROLES)
        with acting_as(sa.create_engine(ours), "effectfence_app") as app:
            World(app, "tenant").commit("as the application")
        migrate.downgrade(ours, drop_certificates=True)
        assert one(admin, known) is None


@pytest.mark.parametrize("table", [table.name for table in metadata.sorted_tables])
def test_the_application_changes_no_column_that_says_what_was_admitted(migrated_database: str, table: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    query = "SELECT has_table_privilege('effectfence_app', :table, :right)"
    for right in ("UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"):
        assert one(engine, query, table=f"effectfence.{table}", right=right) is False
    changing = all_of(
        engine,
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:table) AND attnum > 0 "
        "AND has_column_privilege('effectfence_app', attrelid, attnum, 'UPDATE')",
        table=f"effectfence.{table}",
    )
    said = {
        "namespace",
        "intent",
        "intent_key",
        "domain",
        "domain_key",
        "tool",
        "agent",
        "args",
        "token",
        "body",
        "hash",
    }
    assert set(changing) & said == set()
    if table in {"certificates", "transitions", "edges"}:
        assert changing == []
