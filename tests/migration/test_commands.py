"""The alembic command line, as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from effectfence_pg import Fence, migrate
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.catalogue import catalogue
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
        assert migrate.current(connection) is None


def test_the_library_refuses_and_overrides_in_the_same_way(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    world.put("released", "without a certificate")
    world.commit()
    with pytest.raises(sa.exc.DBAPIError, match="certificates exist"):
        migrate.downgrade(migrated_database)
    assert world.state() == "committed"
    migrate.downgrade(migrated_database, drop_certificates=True)
    migrate.upgrade(migrated_database)
    assert World(engine, "tenant").commit().seq == 1


def test_ten_upgrades_at_once_from_empty_leave_one_schema(fresh_database: str, migrated_database: str) -> None:
    assert [code for code, _ in alembic("upgrade", "head", url=fresh_database, processes=10)] == [0] * 10
    engines = [sa.create_engine(url, poolclass=sa.NullPool) for url in (fresh_database, migrated_database)]
    assert catalogue(engines[0]) == catalogue(engines[1])
    with engines[0].connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM effectfence.alembic_version")) == 1
