"""The alembic command line, as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from effectfence_pg import DatabaseFailure, Fence, migrate, versions
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.catalogue import catalogue
from tests.support.servers import Databases
from tests.support.upgrading import alembic
from tests.support.world import World

CHECKOUT = Path(__file__).parents[2]


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def test_upgrade_by_the_environment_then_check_is_clean(fresh_database: str) -> None:
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    environment = os.environ | {DATABASE_VARIABLE: plain(fresh_database)}
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, capture_output=True, timeout=120)
    # For a role that is called like our schema it is the first one on the path.
    ours_first = sa.make_url(fresh_database).update_query_dict({"options": "-c search_path=effectfence,public"})
    for url in (fresh_database, ours_first.render_as_string(hide_password=False)):
        [(code, said)] = alembic("check", url=url)
        assert code == 0, said
        assert "No new upgrade operations detected" in said


def test_upgrade_by_the_flag_which_comes_before_the_environment(fresh_database: str) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nowhere"
    [(code, said)] = alembic("-x", f"url={plain(fresh_database)}", "upgrade", "effectfence@head", url=nowhere)
    assert code == 0, said
    with Fence(fresh_database) as fence:
        assert fence.current("order:1") == 0


def test_without_a_database_it_says_what_to_set() -> None:
    [(code, said)] = alembic("upgrade", "head")
    assert code != 0
    assert DATABASE_VARIABLE in said
    assert "Traceback" not in said


@pytest.fixture
def latin1(databases: Databases) -> Iterator[str]:
    """The URL of a database that is not UTF8."""
    name = f"effectfence_latin1_{uuid.uuid4().hex[:8]}"
    with databases._admin() as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    url = sa.make_url(databases.admin_url).set(database=name).render_as_string(hide_password=False)
    yield url
    databases.drop(url)


def failed(said: str) -> str:
    """The one line that is no log of what was done."""
    [line] = [line for line in said.splitlines() if not line.startswith("INFO")]
    return line


def test_what_an_operator_can_mend_is_said_in_one_line(
    databases: Databases, latin1: str, migrated_database: str
) -> None:
    missing = sa.make_url(databases.admin_url).set(database="effectfence_never_made")
    World(sa.create_engine(migrated_database, poolclass=sa.NullPool), "tenant").commit()
    for url, command, words in (
        ("mysql://host/database", "upgrade", "mysql is not supported"),
        ("no url", "upgrade", "cannot be used"),
        (missing.render_as_string(hide_password=False), "upgrade", "does not exist"),
        ("postgresql://nobody@127.0.0.1:1/nowhere", "upgrade", "Connection refused. Is the server running"),
        (latin1, "upgrade", "is encoded in LATIN1"),
        (migrated_database, "downgrade", "certificates exist: export them"),
    ):
        [(code, said)] = alembic(command, "head" if command == "upgrade" else "base", url=url)
        assert code == 1, said
        assert failed(said).startswith("FAILED: ")
        assert words in failed(said)


def test_a_downgrade_refuses_while_certificates_exist_unless_told_to_drop_them(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    certificate = world.commit()
    before = catalogue(engine)
    [(code, said)] = alembic("downgrade", "base", url=migrated_database)
    assert code != 0
    assert "certificates exist" in said
    assert "drop-certificates=yes" in said
    assert catalogue(engine) == before
    assert world.status().certificate == certificate
    [(code, said)] = alembic("-x", "drop-certificates=yes", "downgrade", "base", url=migrated_database)
    assert code == 0, said
    with engine.connect() as connection:
        assert versions.current(connection) is None


def test_the_library_refuses_and_overrides_in_the_same_way(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    world.put("released", "without a certificate")
    world.commit()
    with pytest.raises(DatabaseFailure, match="certificates exist"):
        migrate.downgrade(migrated_database)
    assert world.state() == "committed"
    migrate.downgrade(migrated_database, drop_certificates=True)
    migrate.upgrade(migrated_database)
    assert World(engine, "tenant").commit().seq == 1


@pytest.mark.parametrize("state", ["in_flight", "executed", "failed", "aborted"])
def test_a_downgrade_refuses_while_an_effect_is_undecided_because_it_would_run_again(
    migrated_database: str, state: str
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    world.put(state)
    world.put(state, "another")
    [(code, said)] = alembic("downgrade", "base", url=migrated_database)
    assert code != 0
    assert "undecided effects: 2" in failed(said)
    assert "effectfence-pg unresolved" in failed(said)
    assert "drop-certificates=yes" in failed(said)
    with pytest.raises(DatabaseFailure, match="undecided effects: 2"):
        migrate.downgrade(migrated_database)
    assert world.state() == state
    world.commit("certified")
    with pytest.raises(DatabaseFailure, match="certificates: 1, undecided effects: 2"):
        migrate.downgrade(migrated_database)
    [(code, said)] = alembic("-x", "drop-certificates=yes", "downgrade", "base", url=migrated_database)
    assert code == 0, said


def test_a_downgrade_lets_go_of_what_is_decided_and_never_happened(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    world.put("released")
    world.put("superseded", "taken over")
    world.fence.abort(world.ticket("taken over"), "no")
    world.fence.clear("taken over", attempt=2, basis="holder_dead", evidence=1, operator="o")
    assert world.state("taken over") == "released"
    migrate.downgrade(migrated_database)
    with engine.connect() as connection:
        assert versions.current(connection) is None


def test_ten_upgrades_at_once_from_empty_leave_one_schema(fresh_database: str, migrated_database: str) -> None:
    assert [code for code, _ in alembic("upgrade", "head", url=fresh_database, processes=10)] == [0] * 10
    engines = [sa.create_engine(url, poolclass=sa.NullPool) for url in (fresh_database, migrated_database)]
    assert catalogue(engines[0]) == catalogue(engines[1])
    with engines[0].connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM effectfence.alembic_version")) == 1
