"""The revision that keeps an action's digests with its certificate: over whatever data, by whatever owner, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from effectfence_pg import DatabaseFailure, DatabaseUnavailable, Replay, migrate
from effectfence_pg.cli.app import app
from effectfence_pg.sql.tables import metadata
from tests.support.catalogue import catalogue
from tests.support.rows import all_of, change, one
from tests.support.servers import Databases
from tests.support.world import World

BEFORE = "effectfence@0002"
DATABASE = 3


@pytest.fixture
def owned(databases: Databases) -> Iterator[tuple[sa.Engine, sa.Engine]]:
    """Engines on one migrated database: its owner's, who is no superuser, and the administrator's."""
    url = databases.create()
    role = f"owner_of_{sa.make_url(url).database}"
    admin = sa.create_engine(url, poolclass=sa.NullPool)
    change(admin, f"CREATE ROLE {role}")
    change(admin, f"ALTER DATABASE {sa.make_url(url).database} OWNER TO {role}")
    owner = sa.create_engine(sa.make_url(url).update_query_dict({"options": f"-c role={role}"}), poolclass=sa.NullPool)
    migrate.upgrade(owner.url)
    yield owner, admin
    databases.drop(url)
    with databases._admin() as connection:
        connection.execute(f"DROP ROLE {role}")


def security(engine: sa.Engine) -> list[Any]:
    return all_of(
        engine,
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, p.polname FROM pg_class c "
        "LEFT JOIN pg_policy p ON p.polrelid = c.oid "
        "WHERE c.relnamespace = 'effectfence'::regnamespace AND c.relkind = 'r' ORDER BY 1, 4",
    )


def force(owner: sa.Engine, level: str) -> None:
    change(owner, "SELECT effectfence.isolate_namespaces(true)")
    for table in metadata.sorted_tables:
        change(owner, f"ALTER TABLE effectfence.{table.name} {level} ROW LEVEL SECURITY")


def test_an_upgrade_fills_every_tenants_certificates_also_where_row_security_is_forced_on_the_owner(
    owned: tuple[sa.Engine, sa.Engine],
) -> None:
    owner, admin = owned
    worlds = [World(admin, name) for name in ("tenant", "other tenant")]
    parents = [world.commit("parent", identity=("cents",)) for world in worlds]
    force(owner, "FORCE")
    before = security(admin)
    migrate.downgrade(owner.url, BEFORE)
    migrate.upgrade(owner.url)
    assert security(admin) == before
    for world, certificate in zip(worlds, parents, strict=True):
        replayed = world.fence.prepare(world.request("parent", identity=("cents",)))
        assert isinstance(replayed, Replay)
        assert replayed.certificate == certificate
    # A view sees what its owner sees.
    force(owner, "NO FORCE")
    assert one(admin, "SELECT count(*) FROM effectfence.certificate_audit WHERE columns_hold") == len(worlds)


def test_what_row_security_hides_from_the_owner_is_not_taken_for_empty_and_truncated(
    owned: tuple[sa.Engine, sa.Engine],
) -> None:
    owner, admin = owned
    world = World(admin, "tenant")
    world.commit()
    force(owner, "FORCE")
    before = world.rows()
    # The tenant of the one row of each table that leaves the first statistics.
    options = f"{owner.url.query['options']} -c effectfence.namespace=-"
    migrate.upgrade(owner.url.update_query_dict({"options": options}))
    assert world.rows() == before


def test_a_certificate_whose_effect_is_gone_stops_the_upgrade_by_name_and_nothing_is_changed(
    migrated_database: str,
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    lost = world.commit("lost")
    world.commit("kept")
    migrate.downgrade(migrated_database, BEFORE)
    change(engine, "ALTER TABLE effectfence.effects DISABLE TRIGGER ALL")
    change(engine, "DELETE FROM effectfence.effects WHERE intent = 'lost'")
    change(engine, "ALTER TABLE effectfence.effects ENABLE TRIGGER ALL")
    before = catalogue(engine)
    with pytest.raises(DatabaseFailure, match="certificates without their effects") as refused:
        migrate.upgrade(migrated_database)
    assert lost.hash[:12] in str(refused.value)
    assert migrate.revision(migrated_database) == "0002"
    assert catalogue(engine) == before


def test_what_a_server_answers_to_a_migration_is_not_told_as_a_database_that_is_not_there(
    migrated_database: str,
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    migrate.downgrade(migrated_database, BEFORE)
    for sqlstate, words, meddle, mend in (
        (
            "42701",
            "already exists",
            "ALTER TABLE effectfence.certificates ADD COLUMN args_digest bytea",
            "ALTER TABLE effectfence.certificates DROP COLUMN args_digest",
        ),
        (
            # Missing, which otherwise means that a migration is due: not when that is what fails.
            "42883",
            "does not exist",
            "ALTER FUNCTION effectfence.on_record(text, bytea) RENAME TO elsewhere",
            "ALTER FUNCTION effectfence.elsewhere(text, bytea) RENAME TO on_record",
        ),
    ):
        change(engine, meddle)
        before = catalogue(engine)
        with pytest.raises(DatabaseFailure) as refused:
            migrate.upgrade(migrated_database)
        assert refused.value.sqlstate == sqlstate
        said = CliRunner().invoke(app, ["db", "upgrade", "--json", "--database-url", migrated_database])
        assert said.exit_code == DATABASE
        error = json.loads(said.stdout)["error"]
        assert error["code"] == "database_failure"
        assert error["facts"]["sqlstate"] == sqlstate
        assert words in error["facts"]["reason"]
        assert error["retryable"] is False
        assert catalogue(engine) == before
        change(engine, mend)
    migrate.upgrade(migrated_database)


def test_a_lock_that_a_migration_did_not_get_is_not_told_as_a_database_that_is_not_there(
    migrated_database: str,
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    migrate.downgrade(migrated_database, BEFORE)
    url = sa.make_url(migrated_database).update_query_dict({"options": "-c statement_timeout=300"})
    with engine.begin() as reading:
        reading.exec_driver_sql("SELECT FROM effectfence.certificates")
        with pytest.raises(DatabaseUnavailable) as refused:
            migrate.upgrade(url)
    assert "cannot be reached" not in str(refused.value)
    migrate.upgrade(url)
