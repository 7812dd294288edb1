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
from tests.support.upgrading import upgrade_at_once
from tests.support.world import World

CHECKOUT = Path(__file__).parents[2]


def alembic(*arguments: str, url: str | None = None) -> tuple[int, str]:
    """Exit code and everything that was said."""
    environment = {name: value for name, value in os.environ.items() if name != DATABASE_VARIABLE}
    if url is not None:
        environment[DATABASE_VARIABLE] = url
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=CHECKOUT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def test_upgrade_by_the_environment_then_check_is_clean(fresh_database: str) -> None:
    assert alembic("upgrade", "head", url=plain(fresh_database))[0] == 0
    code, said = alembic("check", url=fresh_database)
    assert code == 0, said
    assert "No new upgrade operations detected" in said


def test_upgrade_by_the_flag_which_comes_before_the_environment(fresh_database: str) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nowhere"
    code, said = alembic("-x", f"url={plain(fresh_database)}", "upgrade", "effectfence@head", url=nowhere)
    assert code == 0, said
    with Fence(fresh_database) as fence:
        assert fence.current("order:1") == 0


def test_without_a_database_it_says_what_to_set() -> None:
    code, said = alembic("upgrade", "head")
    assert code != 0
    assert DATABASE_VARIABLE in said
    assert "Traceback" not in said


def test_a_downgrade_refuses_while_certificates_exist_unless_told_to_drop_them(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    certificate = world.commit()
    before = catalogue(engine)
    code, said = alembic("downgrade", "base", url=migrated_database)
    assert code != 0
    assert "certificates exist" in said
    assert "drop-certificates=yes" in said
    assert catalogue(engine) == before
    assert world.status().certificate == certificate
    code, said = alembic("-x", "drop-certificates=yes", "downgrade", "base", url=migrated_database)
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
    assert upgrade_at_once(fresh_database, 10) == [0] * 10
    engines = [sa.create_engine(url, poolclass=sa.NullPool) for url in (fresh_database, migrated_database)]
    assert catalogue(engines[0]) == catalogue(engines[1])
    with engines[0].connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM effectfence.alembic_version")) == 1
