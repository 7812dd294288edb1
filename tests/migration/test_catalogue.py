"""The migrations and the metadata make the same schema, down to what autogenerate does not see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from effectfence_pg import migrate, versions
from effectfence_pg.sql import ddl
from effectfence_pg.sql.tables import SCHEMA_VERSION, metadata
from tests.support.catalogue import QUERIES, catalogue
from tests.support.servers import Databases


@pytest.fixture(scope="module")
def migrated(databases: Databases, template_database: str) -> Iterator[sa.Engine]:
    """A database that the migrations made."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    yield engine
    databases.drop(url)


@pytest.fixture(scope="module")
def created(databases: Databases) -> Iterator[sa.Engine]:
    """A database that the metadata and the statements beside it made."""
    url = databases.create()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for statement in ddl.BEFORE_TABLES:
            connection.exec_driver_sql(statement.replace("%", "%%"))
        metadata.create_all(connection)
        for statement in ddl.AFTER_TABLES:
            connection.exec_driver_sql(statement.replace("%", "%%"))
    yield engine
    databases.drop(url)


@pytest.mark.parametrize("kind", QUERIES)
def test_both_ways_make_the_same(migrated: sa.Engine, created: sa.Engine, kind: str) -> None:
    assert catalogue(migrated)[kind] == catalogue(created)[kind]


def test_the_comparison_sees_something_of_every_kind(migrated: sa.Engine) -> None:
    found = catalogue(migrated)
    empty = {kind for kind, rows in found.items() if not rows}
    assert empty == {"defaults"}
    assert {row[0] for row in found["relations"] if row[1] == "r"} == {table.name for table in metadata.sorted_tables}
    assert {row[0] for row in found["triggers"]} == {table.name for table in metadata.sorted_tables}


def test_every_table_column_view_and_function_says_what_it_is(migrated: sa.Engine) -> None:
    found = catalogue(migrated)
    tables = {row[0] for row in found["relations"] if row[1] == "r"}
    assert [row for row in found["columns"] if row[0] in tables and not row[-1]] == []
    assert [row[0] for row in found["relations"] if row[1] in "rv" and not row[-1]] == []
    assert [row[0] for row in found["functions"] if not row[-1]] == []
    assert all(row[-1] for row in found["schema"])


def test_nobody_but_the_owner_may_touch_anything(migrated: sa.Engine) -> None:
    found = catalogue(migrated)
    grants = [row[1] for row in found["schema"]] + [row[4] for row in found["relations"] if row[1] in "rv"]
    grants += [row[5] for row in found["functions"]]
    assert all(grants)
    # An entry that begins with = is one for everybody.
    assert [grant for grant in grants if "{=" in grant or ",=" in grant] == []


def test_the_version_is_kept_in_our_own_schema(migrated: sa.Engine) -> None:
    with migrated.connect() as connection:
        places = connection.scalars(
            sa.text("SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'alembic_version'")
        )
        assert places.all() == ["effectfence"]
        assert versions.current(connection) == SCHEMA_VERSION


def test_going_down_and_up_again_makes_the_same(
    databases: Databases, template_database: str, migrated: sa.Engine
) -> None:
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    migrate.downgrade(url)
    left = catalogue(engine)
    assert {kind: rows for kind, rows in left.items() if rows and kind != "schema"} == {}
    with engine.connect() as connection:
        assert versions.current(connection) is None
    migrate.upgrade(url)
    assert catalogue(engine) == catalogue(migrated)
    databases.drop(url)


def test_an_upgrade_in_the_callers_transaction_is_the_callers_to_commit(fresh_database: str) -> None:
    engine = sa.create_engine(fresh_database, poolclass=sa.NullPool)
    with engine.connect() as connection:
        migrate.upgrade(connection)
        assert versions.current(connection) == SCHEMA_VERSION
        connection.rollback()
        assert versions.current(connection) is None
        assert connection.scalar(sa.text("SELECT to_regnamespace('effectfence')")) is None


def test_an_upgrade_of_an_upgraded_database_changes_nothing(migrated: sa.Engine) -> None:
    before = catalogue(migrated)
    migrate.upgrade(migrated.url)
    assert catalogue(migrated) == before
