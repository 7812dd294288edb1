"""What `verify` says of one namespace is said of that namespace: another one's certificates and none at all prove nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from effectfence_pg.cli.app import app
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.roles import url_as
from tests.support.servers import Databases, libpq_url
from tests.support.world import World

DONE, NO = 0, 1


@pytest.fixture(scope="module")
def shop(databases: Databases, template_database: str) -> Iterator[World]:
    """Three certificates of one tenant, two of another, and a third tenant that has committed nothing yet."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    for namespace, count in (("shop", 3), ("other", 2)):
        for number in range(count):
            World(engine, namespace).commit(f"charge:{number}")
    World(engine, "young").put("failed")
    yield World(engine, "shop")
    engine.dispose()
    databases.drop(url)


def run(world: World, *arguments: str) -> Result:
    # An auditor's rights suffice for all of it.
    url = libpq_url(url_as(world.engine, "effectfence_auditor"))
    return CliRunner().invoke(app, list(arguments), env={DATABASE_VARIABLE: url})


def facts(world: World, *arguments: str, status: int) -> Any:
    done = run(world, *arguments, "--json")
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


@pytest.fixture
def everything(shop: World, tmp_path: Path) -> str:
    facts(shop, "export", "--out", str(tmp_path / "all.jsonl"), status=DONE)
    return str(tmp_path / "all.jsonl")


@pytest.fixture
def of_shop(shop: World, tmp_path: Path) -> str:
    facts(shop, "export", "-n", "shop", "--out", str(tmp_path / "shop.jsonl"), status=DONE)
    return str(tmp_path / "shop.jsonl")


def test_only_what_was_compared_is_counted_with_the_digest_of_its_own_export(
    shop: World, everything: str, of_shop: str
) -> None:
    total = json.loads(Path(of_shop).read_text().splitlines()[-1])["ledger"]
    for ledger in (everything, of_shop):
        found = facts(shop, "verify", "-n", "shop", "--against", ledger, status=DONE)
        assert (
            {name: found["against"][name] for name in total} == total == {"certificates": 3, "digest": found["digest"]}
        )
    assert facts(shop, "verify", "--against", everything, status=DONE)["against"]["certificates"] == 5
    later = facts(shop, "verify", "-n", "shop", "--since", "2999-01-01", "--against", everything, status=DONE)
    assert later["against"]["certificates"] == 0


def test_an_export_without_the_namespace_proves_nothing_and_is_a_no(shop: World, of_shop: str) -> None:
    found = facts(shop, "verify", "-n", "other", "--against", of_shop, status=NO)
    assert (found["certificates"], found["mismatch_count"], found["holds"]) == (2, 0, False)
    assert (found["against"]["certificates"], found["against"]["lacks_namespace"]) == (0, True)
    said = run(shop, "verify", "-n", "other", "--against", of_shop)
    assert said.exit_code == NO
    assert "has nothing of this namespace" in said.stdout
    assert "all of it holds" not in said.stdout


@pytest.mark.parametrize("against", [False, True])
def test_a_namespace_that_was_never_used_is_a_no(shop: World, everything: str, against: bool) -> None:
    more = ["--against", everything] if against else []
    refused = facts(shop, "verify", "-n", "shpo", *more, status=NO)["error"]
    assert (refused["code"], refused["facts"]) == ("unknown_namespace", {"namespace": "shpo"})
    assert "spelling" in refused["advice"]


def test_a_namespace_without_certificates_but_with_intents_has_nothing_to_verify_yet(shop: World) -> None:
    assert "nothing to verify" in run(shop, "verify", "-n", "young").stdout
    assert facts(shop, "verify", "-n", "young", status=DONE)["certificates"] == 0
    assert facts(shop, "verify", "-n", "shop", "--since", "2999-01-01", status=DONE)["certificates"] == 0


def test_a_namespace_that_is_gone_altogether_is_missing_from_the_comparison(
    shop: World, migrated_database: str, of_shop: str
) -> None:
    empty = World(sa.create_engine(migrated_database, poolclass=sa.NullPool), "shop")
    found = facts(empty, "verify", "-n", "shop", "--against", of_shop, status=NO)
    assert (found["against"]["certificates"], found["against"]["missing_count"]) == (3, 3)
