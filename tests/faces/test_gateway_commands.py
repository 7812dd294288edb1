"""``probe`` and ``demo``, what they say and with which exit status; what a gateway keeps in mind."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from effectfence_pg.gateway.catalogue import Catalogue
from effectfence_pg.gateway.policy import Action
from effectfence_pg.gateway.sessions import Sessions
from effectfence_pg.gateway.tenants import Tenants
from effectfence_pg.values import ReadSetEntry
from tests.support.faces import command, run, upstream
from tests.support.witness import Witness


def test_hints_are_hints_and_a_change_of_them_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    catalogue = Catalogue()
    assert catalogue.action("never listed") == Action.FENCE
    catalogue.learn([{"name": "a"}, {"name": "b", "annotations": {"readOnlyHint": True}}, {"name": 7}])
    assert (catalogue.action("a"), catalogue.action("b")) == (Action.FENCE, Action.OBSERVE)
    catalogue.learn([{"name": "a", "annotations": {"readOnlyHint": "yes"}}, {"name": "b", "annotations": {}}])
    assert (catalogue.action("a"), catalogue.action("b")) == (Action.FENCE, Action.FENCE)
    assert catalogue.learn([{"name": "c", "annotations": {"readOnlyHint": True}}]) == {"c"}
    catalogue.forget_others({"a", "b"})
    assert catalogue.action("c") == Action.FENCE
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["a", "b", "c"]


def test_a_session_rests_on_its_latest_reads_and_on_its_own_effects_and_no_other_one_does() -> None:
    sessions = Sessions()
    for number in range(300):
        sessions.observed("s", "t", [ReadSetEntry(domain=f"d{number}", seq=4)])
    assert [entry.domain for entry in sessions.read_set("s", "t")] == [f"d{number}" for number in range(44, 300)]
    sessions.acted("s", "t", "d299", 5)
    sessions.acted("s", "t", "d298", 6)  # somebody else acted in between: what was read is stale, and stays so
    assert [entry.seq for entry in sessions.read_set("s", "t")[-2:]] == [4, 5]
    assert sessions.read_set("s", "u") == sessions.read_set("r", "t") == ()


def test_fences_of_tenants_are_let_go_when_there_are_many_and_never_while_they_are_used(database_url: str) -> None:
    async def main() -> None:
        tenants = Tenants(database_url)
        first = await tenants.enter("tenant-0")
        for number in range(1, 40):
            await tenants.enter(f"tenant-{number}")
            tenants.leave(f"tenant-{number}")
        assert await tenants.enter("tenant-0") is first
        assert len(tenants) <= 33
        await tenants.aclose()

    run(main())


def test_probe_proves_a_double_fire_or_says_that_it_cannot_tell(tmp_path: Path) -> None:
    books = Witness(tmp_path / "books")
    status, out, _ = command("probe", "--json", "--tool", "charge", "--calls", "5", "--", *upstream(books.path))
    assert (status, json.loads(out)["verdict"], json.loads(out)["distinct"]) == (1, "double_fire", 5)
    assert json.loads(out)["executions"] == books.count("charge") == 5
    status, out, _ = command("probe", "--tool", "media", "--calls", "3", "--", *upstream(books.path))
    assert status == 0
    assert out.startswith("inconclusive: 3 of 3 calls answered, 1 different answers")
    status, _, err = command("probe", "--tool", "nothing", "--", *upstream(books.path))
    assert status == 2
    assert "no tool 'nothing'" in err


@pytest.mark.parametrize("arguments", [[], ["--url", "http://x", "--", "true"], ["--", "no-such-command-here"]])
def test_a_gateway_needs_one_upstream(arguments: list[str]) -> None:
    status, out, err = command("gateway", *arguments)
    assert (status, out) == (2, "")
    assert "upstream" in err


def test_the_demo_charges_once_behind_gateways(migrated_database: str) -> None:
    status, out, err = command("demo", "--json", EFFECTFENCE_DATABASE_URL=migrated_database)
    assert status == 0, err
    assert json.loads(out) == {"raw": 12, "gateway": 1, "two_gateways": 1, "killed_after_effect": 1}
    told = re.match(r"writing to namespace (demo-\w+) of database ", err)
    assert told is not None, "it says where it writes"
    with contextlib.closing(psycopg.connect(migrated_database.replace("+psycopg", ""))) as connection:
        assert connection.execute("SELECT DISTINCT namespace FROM effectfence.intents").fetchall() == [(told[1],)]
        unresolved = connection.execute("SELECT count(*) FROM effectfence.unresolved").fetchone()
    assert unresolved == (0,), "nothing is left for an operator"


@pytest.mark.parametrize("fault", ["never migrated", "away"])
def test_the_demo_says_in_one_line_that_a_database_cannot_be_used(fresh_database: str, fault: str) -> None:
    url = fresh_database if fault == "never migrated" else "postgresql://nobody@127.0.0.1:9/nothing"
    status, out, err = command("demo", "--json", "--database-url", url)
    assert status == 3, err
    code = {"never migrated": "schema_version_error", "away": "database_unavailable"}[fault]
    assert json.loads(out)["error"]["code"] == code
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "extra"), [(["mcp"], "mcp"), (["gateway", "--", "true"], "gateway"), (["demo"], "gateway")]
)
def test_without_the_extra_one_line_says_what_to_install(arguments: list[str], extra: str) -> None:
    _says_what_to_install(arguments, extra, "mcp", "mcp_types")


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["gateway", "--", "true"], "httpx2"),
        (["gateway", "--", "true"], "jsonschema"),
        (["demo"], "httpx2"),
        (["probe", "--tool", "t", "--", "true"], "httpx2"),
    ],
)
def test_with_the_extra_of_another_face_that_line_is_the_same(arguments: list[str], module: str) -> None:
    _says_what_to_install(arguments, "gateway", module)


def _says_what_to_install(arguments: list[str], extra: str, *missing: str) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); from effectfence_pg.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"This command needs an extra: pip install 'effectfence-pg[{extra}]'\n"
