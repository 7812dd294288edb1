"""What is recorded stays: also for the owner, also for a superuser, also in a session that poses as a replica."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from effectfence_pg import migrate
from tests.support.servers import Databases
from tests.support.world import STATES, World

CHANGES = {
    "certificates": "UPDATE effectfence.certificates SET minted_at = clock_timestamp()",
    "transitions": "UPDATE effectfence.transitions SET actor = 'mallory'",
    "edges": "UPDATE effectfence.edges SET via = 'parent'",
}
TABLES = ("certificates", "transitions", "edges", "effects", "intents", "domains")


@pytest.fixture
def recorded(world: World) -> World:
    parent = world.commit("base")
    world.commit(parent=parent.hash)
    return world


def values(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """What is stored, whoever locked it last: a refused removal does lock."""
    return {table: [row[3:] for row in found] for table, found in world.rows().items()}


def refuse(world: World, statement: str, *, replica: bool) -> None:
    with world.engine.begin() as connection:
        if replica:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        with pytest.raises(DBAPIError, match="is refused") as refused:
            connection.exec_driver_sql(statement)
        assert refused.value.orig.sqlstate == "42501"
        connection.rollback()


@pytest.mark.parametrize("replica", [False, True], ids=["ordinary", "replica"])
def test_what_is_recorded_is_neither_changed_nor_removed(recorded: World, replica: bool) -> None:
    before = values(recorded)
    for statement in CHANGES.values():
        refuse(recorded, statement, replica=replica)
    for table in TABLES:
        refuse(recorded, f"DELETE FROM effectfence.{table} WHERE namespace = '{recorded.namespace}'", replica=replica)
        refuse(recorded, f"TRUNCATE effectfence.{table} CASCADE", replica=replica)
    assert values(recorded) == before


@pytest.mark.parametrize("column", ["hash", "body"])
def test_a_certificate_whose_hash_is_not_its_bodys_cannot_be_stored(recorded: World, column: str) -> None:
    values = {"hash": "repeat('0', 64)", "body": "body || ' '"}
    selected = ", ".join(values[name] if name == column else name for name in ("hash", "body"))
    with recorded.engine.begin() as connection, pytest.raises(IntegrityError, match="ck_certificates_hash"):
        connection.exec_driver_sql(
            "INSERT INTO effectfence.certificates (namespace, hash, body, intent_key, attempt, minted_at, args_digest, identity_digest) "
            f"SELECT namespace, {selected}, sha256('other'), attempt, minted_at, args_digest, identity_digest "
            "FROM effectfence.certificates "
            f"WHERE namespace = '{recorded.namespace}' AND parent IS NULL"
        )


@pytest.mark.parametrize(
    ("table", "assignment"),
    [
        ("effects", "state = 'done'"),
        ("effects", "tool = repeat('x', 1025)"),
        ("effects", "agent = repeat('é', 513)"),
        ("intents", "intent = repeat('x', 1025)"),
        ("domains", "domain = repeat('x', 1025)"),
        ("domains", "namespace = repeat('x', 129)"),
    ],
)
def test_the_database_itself_knows_the_states_and_the_sizes(recorded: World, table: str, assignment: str) -> None:
    with (
        recorded.engine.begin() as connection,
        pytest.raises(IntegrityError, match=r"domain (effectfence\.)?\w+ violates check"),
    ):
        connection.exec_driver_sql(
            f"UPDATE effectfence.{table} SET {assignment} WHERE namespace = '{recorded.namespace}'"
        )


@pytest.fixture
def owner(databases: Databases) -> Iterator[str]:
    """The URL of an empty database for an ordinary role that owns it."""
    role, url = f"owner_{uuid.uuid4().hex[:12]}", databases.create()
    name = sa.make_url(url).database
    with databases._admin() as connection:
        connection.execute(f'CREATE ROLE "{role}"')
        connection.execute(f'ALTER DATABASE "{name}" OWNER TO "{role}"')
    yield sa.make_url(url).update_query_dict({"options": f"-c role={role}"}).render_as_string(hide_password=False)
    databases.drop(url)
    with databases._admin() as connection:
        connection.execute(f'DROP ROLE "{role}"')


def test_an_ordinary_owner_migrates_and_does_everything_without_more_rights(owner: str) -> None:
    migrate.upgrade(owner)
    engine = sa.create_engine(owner)
    world = World(engine, "tenant")
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SHOW is_superuser")) == "off"
        assert connection.scalar(sa.text("SELECT current_user <> session_user"))
    for state in STATES:
        world.put(state, state)
    parent = world.commit("parent")
    world.commit("child", parent=parent.hash, read_set=world.fence.observe("of:parent"))
    world.fence.sweep()
    world.fence.clear("failed", attempt=1, basis="holder_dead", evidence=1, operator="o")
    for table in TABLES:
        with engine.begin() as connection, pytest.raises(DBAPIError) as refused:
            connection.exec_driver_sql(f"DELETE FROM effectfence.{table}")
        assert refused.value.orig.sqlstate == "42501"
    engine.dispose()
    migrate.downgrade(owner, drop_certificates=True)
