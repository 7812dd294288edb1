"""What the commands of operators and auditors say to a role that may not ask: never an answer, and never a no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from effectfence_pg.audit import ledger
from effectfence_pg.audit.reading import reading
from effectfence_pg.cli.app import app
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.roles import url_as
from tests.support.rows import change
from tests.support.servers import Databases, libpq_url
from tests.support.world import World

DATABASE = 3
BY_VIEWS = [("unresolved",), ("lineage", "charge:1", "-n", "shop"), ("verify",), ("export",), ("doctor",)]
BY_TABLES = [
    ("intents", "list", "-n", "shop"),
    ("intents", "show", "charge:1", "-n", "shop"),
    ("stats",),
    ("sweep", "-n", "shop"),
    ("settle", "-n", "shop"),
    ("reconcile", "failed", "-n", "shop", "--attempt", "1", "--compensated", "--evidence", "x"),
    ("import", "LEDGER"),
]


@pytest.fixture(scope="module")
def shop(databases: Databases, template_database: str) -> Iterator[World]:
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "shop")
    world.commit()
    world.put("failed", "failed")
    yield world
    engine.dispose()
    databases.drop(url)


def run_as(world: World, role: str, folder: Path, *command: str) -> Result:
    file = folder / "ledger.jsonl"
    with reading(world.engine.url) as reader, file.open("w") as out:
        ledger.export(reader, out)
    arguments = [str(file) if word == "LEDGER" else word for word in command]
    return CliRunner().invoke(app, arguments, env={DATABASE_VARIABLE: libpq_url(url_as(world.engine, role))})


@pytest.mark.parametrize(
    ("role", "command"),
    [
        # Of the server, and with no right to anything of ours.
        *(("pg_monitor", command) for command in (*BY_VIEWS, *BY_TABLES)),
        *(("effectfence_app", command) for command in BY_VIEWS),
        *(("effectfence_auditor", command) for command in (*BY_TABLES, ("doctor",))),
    ],
    ids=str,
)
def test_a_role_without_the_right_is_exit_status_3_as_any_database_that_cannot_be_used(
    shop: World, tmp_path: Path, role: str, command: tuple[str, ...]
) -> None:
    done = run_as(shop, role, tmp_path, *command)
    assert done.exit_code == DATABASE, done.output
    assert "permission denied" in done.stderr
    assert "effectfence_operator" in done.stderr, "it says which role to ask for"
    assert shop.state("failed") == "failed"


@pytest.fixture(scope="module")
def isolated(databases: Databases, template_database: str) -> Iterator[World]:
    """The same with row security on."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    change(engine, "SELECT effectfence.isolate_namespaces(true)")
    world = World(engine, "shop")
    world.commit()
    world.put("failed", "failed")
    World(engine, "other").commit()
    yield world
    engine.dispose()
    databases.drop(url)


@pytest.mark.parametrize("command", BY_TABLES, ids=str)
def test_under_row_security_nothing_is_answered_to_who_names_no_tenant(
    isolated: World, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run_as(isolated, "effectfence_app", tmp_path, *command)
    assert done.exit_code == DATABASE, done.output
    assert "no namespace is named" in done.stderr
    assert "effectfence.namespace" in done.stderr
    assert done.stdout == ""
    assert isolated.state("failed") == "failed"


def test_who_names_a_tenant_as_advised_is_answered_about_it(isolated: World) -> None:
    url = url_as(isolated.engine, "effectfence_app", **{"effectfence.namespace": "shop"})
    for command, words in (
        (("stats", "--json"), '"intents": 2'),
        (("intents", "list", "-n", "shop"), "charge:1"),
        (("sweep", "-n", "shop"), "0 expired leases"),
    ):
        done = CliRunner().invoke(app, list(command), env={DATABASE_VARIABLE: libpq_url(url)})
        assert done.exit_code == 0, done.output
        assert words in done.stdout


def test_operators_and_auditors_are_answered_about_every_tenant(isolated: World, tmp_path: Path) -> None:
    for command in (*BY_VIEWS[:-1], *BY_TABLES[:3]):
        assert run_as(isolated, "effectfence_operator", tmp_path, *command).exit_code == 0
    assert '"intents": 3' in run_as(isolated, "effectfence_operator", tmp_path, "stats", "--json").stdout
    for command in BY_VIEWS[:-1]:
        assert run_as(isolated, "effectfence_auditor", tmp_path, *command).exit_code == 0


def test_who_reads_views_beside_the_tables_of_a_tenant_is_answered_by_the_views(
    isolated: World, tmp_path: Path
) -> None:
    name = f"both_{sa.make_url(str(isolated.engine.url)).database}"
    change(isolated.engine, f"CREATE ROLE {name} IN ROLE effectfence_app, effectfence_auditor")
    try:
        assert "2 certificates recomputed" in run_as(isolated, name, tmp_path, "verify").stdout
        for command in (("stats",), ("doctor",)):
            done = run_as(isolated, name, tmp_path, *command)
            assert (done.exit_code, done.stdout) == (DATABASE, "")
            assert "no namespace is named" in done.stderr
    finally:
        change(isolated.engine, f"DROP ROLE {name}")
