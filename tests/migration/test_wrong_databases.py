"""Databases that the fence cannot work with: each a typed error that says what to do, and nothing admitted."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from effectfence_pg import (
    DatabaseEncodingError,
    DatabaseUnavailable,
    Fence,
    FenceConfig,
    FenceError,
    FenceRepository,
    Fresh,
    SchemaVersionError,
    migrate,
)
from effectfence_pg.sql.tables import SCHEMA_VERSION
from tests.support.rows import change, one
from tests.support.servers import Databases
from tests.support.world import World

REQUEST = {"intent": "charge:1", "domain": "order:1", "tool": "charge", "agent": "agent-a"}


def verbs(fence: Fence) -> list[object]:
    return [
        lambda: fence.prepare(REQUEST),
        lambda: fence.observe("order:1"),
        lambda: fence.status("charge:1"),
        lambda: fence.reserve("order:1", 0),
        fence.sweep,
    ]


def test_a_database_that_was_never_migrated_is_named_with_the_command(fresh_database: str) -> None:
    with Fence(fresh_database) as fence:
        for act in verbs(fence):
            with pytest.raises(SchemaVersionError) as refused:
                act()
            error = refused.value
            assert (error.found, error.expected) == (None, SCHEMA_VERSION)
            assert error.command == "effectfence-pg db upgrade"
            assert error.command in str(error)
        migrate.upgrade(fresh_database)
        assert isinstance(fence.prepare(REQUEST), Fresh), "the same fence, once it is migrated"


def test_a_database_that_was_taken_back_is_named_again(migrated_database: str) -> None:
    with Fence(migrated_database) as fence:
        assert fence.current("order:1") == 0
        migrate.downgrade(migrated_database)
        for act in verbs(fence):
            with pytest.raises(SchemaVersionError):
                act()


@pytest.mark.parametrize(
    ("found", "command"),
    [("0000", "effectfence-pg db upgrade"), ("9999", "pip install --upgrade effectfence-pg")],
)
def test_an_older_or_newer_database_is_named_with_the_command_that_mends_it(
    migrated_database: str, found: str, command: str
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    change(engine, "UPDATE effectfence.alembic_version SET version_num = :found", found=found)
    world = World(engine, "tenant")
    for act in verbs(world.fence):
        with pytest.raises(SchemaVersionError) as refused:
            act()
        assert (refused.value.found, refused.value.expected, refused.value.command) == (found, SCHEMA_VERSION, command)
    assert all(rows == [] for rows in world.rows().values())


def test_the_version_is_asked_once_per_fence(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database)
    asked: list[str] = []
    sa.event.listen(
        engine, "before_cursor_execute", lambda *a: asked.append(a[2]) if "alembic_version" in a[2] else None
    )
    fence = Fence(engine)
    for _ in range(3):
        fence.current("order:1")
    once = len(asked)
    Fence(engine).current("order:1")
    assert len(asked) == 2 * once > 0
    engine.dispose()


def test_a_repository_on_a_database_that_was_never_migrated_says_so(fresh_database: str) -> None:
    engine = sa.create_engine(fresh_database, poolclass=sa.NullPool, isolation_level="SERIALIZABLE")
    with engine.connect() as connection, pytest.raises(SchemaVersionError) as refused:
        FenceRepository(connection).prepare(REQUEST)
    assert refused.value.command == "effectfence-pg db upgrade"


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def foreign(request: pytest.FixtureRequest, databases: Databases) -> Iterator[tuple[str, str]]:
    """The URL and the encoding of a database that is not UTF8."""
    name = f"effectfence_{request.param.lower()}_{uuid.uuid4().hex[:8]}"
    with databases._admin() as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    url = sa.make_url(databases.admin_url).set(database=name).render_as_string(hide_password=False)
    yield url, request.param
    databases.drop(url)


def test_a_database_that_is_not_utf8_is_refused_by_migration_and_fence(foreign: tuple[str, str]) -> None:
    url, encoding = foreign
    with pytest.raises(DatabaseEncodingError) as refused:
        migrate.upgrade(url)
    assert refused.value.encoding == encoding
    with psycopg.connect(
        sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    ) as connection:
        assert connection.execute("SELECT to_regnamespace('effectfence') IS NULL").fetchone() == (True,)
    with Fence(url) as fence:
        for act in verbs(fence):
            with pytest.raises(DatabaseEncodingError) as refused:
                act()
            assert refused.value.encoding == encoding


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"postgresql://nobody@127.0.0.1:{taken.getsockname()[1]}/nowhere"


def test_a_database_that_cannot_be_reached_admits_nothing_and_says_so_at_once(nowhere: str) -> None:
    started = time.monotonic()
    with Fence(nowhere) as fence:
        for act in verbs(fence):
            with pytest.raises(DatabaseUnavailable) as refused:
                act()
            assert refused.value.retryable
            assert "do not run the effect" in refused.value.advice.lower()
        assert fence.stats().admitted == 0
    with pytest.raises(DatabaseUnavailable):
        migrate.upgrade(nowhere)
    assert time.monotonic() - started < 5


def test_a_database_that_does_not_exist_cannot_be_reached_either(databases: Databases) -> None:
    url = sa.make_url(databases.admin_url).set(database="effectfence_never_made").render_as_string(hide_password=False)
    with Fence(url) as fence, pytest.raises(DatabaseUnavailable):
        fence.prepare(REQUEST)
    with pytest.raises(DatabaseUnavailable):
        migrate.upgrade(url)


def test_a_database_that_goes_away_admits_nothing(databases: Databases, template_database: str) -> None:
    url = databases.create(template_database)
    with Fence(url, config=FenceConfig(retry_deadline_seconds=0.2)) as fence:
        assert fence.current("order:1") == 0
        databases.drop(url)
        for act in verbs(fence):
            with pytest.raises(DatabaseUnavailable):
                act()


def test_a_server_that_went_away_between_two_calls_is_told_at_once(migrated_database: str, nowhere: str) -> None:
    """The fence knows the database; its pool has no connection left, and nobody takes a new one."""
    engine = sa.create_engine(migrated_database)
    with Fence(engine) as fence:
        assert fence.current("order:1") == 0
        engine.dispose()
        port = sa.make_url(nowhere).port
        sa.event.listen(engine, "do_connect", lambda *a: a[3].update(host="127.0.0.1", port=port))
        started = time.monotonic()
        for act in verbs(fence):
            with pytest.raises(DatabaseUnavailable):
                act()
        assert time.monotonic() - started < 5


def test_a_database_that_only_answers_questions_admits_nothing(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    name = sa.make_url(migrated_database).database
    change(engine, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    world = World(engine, "tenant")
    assert world.fence.current("order:1") == 0
    with pytest.raises(FenceError) as refused:
        world.fence.prepare(REQUEST)
    assert isinstance(refused.value, DatabaseUnavailable)
    assert one(engine, "SELECT count(*) FROM effectfence.intents") == 0
