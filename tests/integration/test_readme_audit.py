"""The README's audit section: each query answers what it says, and the picture is the command's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from effectfence_pg.cli.app import app
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.integration.test_readme import README, example, run
from tests.support.rows import all_of
from tests.support.servers import Databases, libpq_url
from tests.support.shop import tell
from tests.support.world import World

BLOCK = r"<!-- {} -->\n```{}\n(.*?)```"


def block(name: str, language: str) -> str:
    found = re.search(BLOCK.format(re.escape(name), language), README, re.DOTALL)
    assert found, f"the README has no {language} called {name}"
    return found[1]


@pytest.fixture(scope="module")
def shop(databases: Databases, template_database: str) -> Iterator[World]:
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "shop")
    tell(world)
    yield world
    engine.dispose()
    databases.drop(url)


def asked(world: World, name: str) -> list[Any]:
    with world.engine.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(block(f"cookbook: {name}", "sql").replace("%", "%%"))]


def test_every_query_of_the_cookbook_is_tested() -> None:
    assert set(re.findall(r"<!-- cookbook: (\w+) -->", README)) == {
        "decision",
        "agent",
        "dependents",
        "reconciled",
        "provider",
        "audit",
        "retention",
    }
    assert README.count("```sql") == 7


def test_who_charged_it_and_on_what_decision(shop: World) -> None:
    certificate = shop.status("charge:order-123").certificate.hash
    assert asked(shop, "decision") == [
        ("agent-billing", "charge_card", certificate, 0, "charge:order-123", "agent-billing", None),
        ("agent-billing", "charge_card", certificate, 1, "decide:order-123", "agent-planner", "parent"),
        ("agent-billing", "charge_card", certificate, 2, "prices:2026-05", "agent-price", "observes"),
        ("agent-billing", "charge_card", certificate, 2, "quote:order-123", "agent-sales", "read_set"),
    ]


def test_what_an_agent_did_between_two_times(shop: World) -> None:
    assert [(row[2], row[5], row[6]) for row in asked(shop, "agent")] == [
        ("charge:order-123", "committed", ["admitted", "committed"]),
        ("refund:order-99", "committed", ["admitted", "outcome_unknown", "reconciled_happened"]),
        ("charge:order-77", "failed", ["admitted", "outcome_unknown"]),
    ]


def test_what_was_built_on_a_certificate(shop: World) -> None:
    assert [(row[0], row[1], row[2]) for row in asked(shop, "dependents")] == [
        (1, "decide:order-123", "committed"),
        (2, "charge:order-123", "committed"),
        (3, "ship:order-123", "committed"),
    ]


def test_which_effects_rest_on_what_was_reconciled(shop: World) -> None:
    assert asked(shop, "reconciled") == [("refund:order-99", "olga", "mail:order-99", "committed")]


def test_the_providers_ledger_differs_in_exactly_the_injected_fault(shop: World) -> None:
    assert asked(shop, "provider") == [("charge:order-77", "failed", True)]
    unresolved = all_of(shop.engine, "SELECT intent FROM effectfence.unresolved WHERE namespace = 'shop'")
    assert unresolved == ["charge:order-77"]


def test_the_audit_finds_nothing_and_retention_takes_nothing_so_soon(shop: World) -> None:
    assert asked(shop, "audit") == []
    assert asked(shop, "retention") == [(0, 0, 0)]


def test_the_picture_is_what_the_command_prints(shop: World) -> None:
    command = re.search(r"`effectfence-pg (lineage [^`]*--format mermaid)`", README)
    assert command
    url = libpq_url(shop.engine.url.render_as_string(hide_password=False))
    done = CliRunner().invoke(app, command[1].split(), env={DATABASE_VARIABLE: url})
    assert done.exit_code == 0
    assert done.stdout == block("lineage", "mermaid")


def test_the_telemetry_example_runs(migrated_database: str) -> None:
    assert run(example("telemetry"), migrated_database) == ""


def test_every_command_of_the_table_is_there() -> None:
    table = README.partition("| command | does |\n|---|---|\n| `intents list`")[2].partition("\n\n")[0]
    named = {
        "intents",
        *re.findall(r"`(\w+)", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line[1:])),
    }
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    assert {
        "unresolved",
        "reconcile",
        "lineage",
        "verify",
        "export",
        "import",
        "sweep",
        "settle",
        "stats",
        "doctor",
    } <= known
    assert {name for name in named if name.islower()} - {"show"} <= known
    assert os.environ.get(DATABASE_VARIABLE) is None
