"""What the operator's and the auditor's commands promise: the answer, as text and as JSON, and the exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from effectfence_pg import AttemptMismatch, ClosureAborted, NotReconcilable
from effectfence_pg.cli.app import app
from effectfence_pg.cli.audit import _rates
from effectfence_pg.rendering import FORMATS
from effectfence_pg.settings import DATABASE_VARIABLE
from effectfence_pg.sql.tables import SCHEMA_VERSION, UPGRADE_COMMAND
from tests.support.roles import url_as
from tests.support.rows import all_of, change, one
from tests.support.servers import Databases, libpq_url
from tests.support.world import STATES, World

DONE, NO, USAGE, DATABASE = 0, 1, 2, 3


@pytest.fixture(scope="module")
def shop(databases: Databases, template_database: str) -> Iterator[World]:
    """A tenant with an effect in every state, and a lineage of three."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "shop")
    for state in STATES:
        world.put(state, state)
    quote = world.commit("quote", domain="order:1")
    plan = world.commit("plan", parent=quote.hash, domain="order:1")
    world.commit("charge", read_set=world.fence.observe("order:1"), parent=plan.hash)
    yield world
    engine.dispose()
    databases.drop(url)


def run(world: World | str, *arguments: str, stdin: str | None = None) -> Result:
    url = world if isinstance(world, str) else libpq_url(world.engine.url.render_as_string(hide_password=False))
    return CliRunner().invoke(app, list(arguments), env={DATABASE_VARIABLE: url}, input=stdin)


def facts(world: World | str, *arguments: str, status: int = DONE) -> Any:
    done = run(world, *arguments, "--json")
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_intents_are_listed_page_by_page_each_once(shop: World) -> None:
    listed: list[str] = []
    after: list[str] = []
    while True:
        page = facts(shop, "intents", "list", "-n", "shop", "--limit", "4", *after)
        listed += [row["intent"] for row in page["intents"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    stored = all_of(shop.engine, "SELECT intent FROM effectfence.intents WHERE namespace = 'shop'")
    assert sorted(listed) == sorted(stored)


def test_intents_are_listed_by_state_agent_and_domain(shop: World) -> None:
    failed = facts(shop, "intents", "list", "-n", "shop", "--state", "failed", "--state", "released")
    assert {row["state"] for row in failed["intents"]} == {"failed", "released"}
    assert facts(shop, "intents", "list", "-n", "shop", "--agent", "nobody")["intents"] == []
    domain = facts(shop, "intents", "list", "-n", "shop", "--domain", "order:1", "--limit", "1")
    assert [(row["intent"], row["seq"]) for row in domain["intents"]] == [("plan", 2)]
    below = facts(shop, "intents", "list", "-n", "shop", "--domain", "order:1", "--after", domain["next"])
    assert [row["intent"] for row in below["intents"]] == ["quote"]
    assert "go on with" in run(shop, "intents", "list", "-n", "shop", "--limit", "2").stdout


def test_an_intent_is_shown_with_attempts_and_history(shop: World) -> None:
    shown = facts(shop, "intents", "show", "superseded", "-n", "shop")
    assert [attempt["state"] for attempt in shown["attempts"]] == ["superseded", "in_flight"]
    assert [move["cause"] for move in shown["history"]] == ["admitted", "takeover", "admitted"]
    assert "reconciled" not in run(shop, "intents", "show", "charge", "-n", "shop").stdout
    assert shop.status("charge").certificate.hash in run(shop, "intents", "show", "charge", "-n", "shop").stdout
    unknown = facts(shop, "intents", "show", "nothing", "-n", "shop", status=NO)
    assert unknown["error"]["code"] == "unknown_intent"


def test_unresolved_is_the_view(shop: World) -> None:
    shown = facts(shop, "unresolved")
    view = all_of(shop.engine, "SELECT intent FROM effectfence.unresolved ORDER BY admitted_at")
    assert [row["intent"] for row in shown["unresolved"]] == view
    assert shown["count"] == len(view)
    assert facts(shop, "unresolved", "--limit", "2")["count"] == len(view)
    assert facts(shop, "unresolved", "-n", "nobody") == {"count": 0, "unresolved": []}
    text = run(shop, "unresolved", "--limit", "2")
    assert f"2 of {len(view)}" in text.stdout


def test_lineage_is_drawn_in_every_format_by_hash_and_by_intent(shop: World, tmp_path: Path) -> None:
    hash_ = shop.status("charge").certificate.hash
    for name in FORMATS:
        by_intent = run(shop, "lineage", "charge", "-n", "shop", "--format", name)
        by_hash = run(shop, "lineage", hash_, "-n", "shop", "--format", name)
        assert by_intent.exit_code == DONE, by_intent.output
        assert by_intent.stdout == by_hash.stdout
        out = tmp_path / f"lineage.{name}"
        assert facts(shop, "lineage", "charge", "-n", "shop", "--format", name, "--out", str(out))["nodes"] == 3
        assert out.read_text() == by_intent.stdout
    graph = facts(shop, "lineage", "charge", "-n", "shop")
    assert [node["intent"] for node in graph["nodes"]] == ["charge", "plan", "quote"]
    assert len(graph["edges"]) == 2
    assert len(facts(shop, "lineage", "charge", "-n", "shop", "--depth", "1")["nodes"]) == 2
    dependents = facts(shop, "lineage", "quote", "-n", "shop", "--dependents")
    assert [node["intent"] for node in dependents["nodes"]] == ["quote", "plan", "charge"]


def test_lineage_of_what_has_no_certificate_says_so(shop: World) -> None:
    for name in ("failed", "nothing", "0" * 64):
        assert facts(shop, "lineage", name, "-n", "shop", status=NO)["error"]["code"] == "unknown_certificate"
    assert facts(shop, "lineage", "charge", "-n", "other", status=NO)["error"]["code"] == "unknown_certificate"
    bad = facts(shop, "lineage", "charge", "-n", "shop", "--out", "/nowhere/at/all", status=USAGE)
    assert bad["error"]["facts"]["field"] == "out"
    assert "/nowhere/at/all" in bad["error"]["message"]


def test_verify_holds_and_is_no_when_something_was_touched(migrated_database: str, tmp_path: Path) -> None:
    world = World(sa.create_engine(migrated_database, poolclass=sa.NullPool), "shop")
    world.commit("first")
    out = str(tmp_path / "ledger.jsonl")
    exported = facts(world, "export", "--out", out)
    verified = facts(world, "verify", "--against", out)
    assert (verified["holds"], verified["certificates"], verified["digest"]) == (True, 1, exported["digest"])
    assert verified["against"]["digest"] == exported["digest"]
    change(world.engine, "ALTER TABLE effectfence.effects DISABLE TRIGGER ALL")
    change(world.engine, "UPDATE effectfence.effects SET args = '{}'")
    broken = facts(world, "verify", status=NO)
    assert [(row["intent"], row["checks"]) for row in broken["mismatches"]] == [("first", ["columns"])]
    text = run(world, "verify")
    assert text.exit_code == NO
    assert "NOT hold" in text.stdout
    assert facts(world, "verify", "-n", "other", status=NO)["error"]["code"] == "unknown_namespace"
    assert facts(world, "verify", "--since", "2999-01-01")["certificates"] == 0


def test_an_export_goes_to_stdout_or_a_file_and_is_checked_without_a_database(shop: World, tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    facts(shop, "export", "-n", "shop", "--out", str(out))
    assert run(shop, "export", "-n", "shop").stdout == out.read_text()
    assert run(shop, "export", "--json").exit_code == USAGE
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    assert facts(nowhere, "import", str(out), "--check") == {"verified": 4}
    out.write_text(out.read_text().replace("quote", "quota"))
    assert facts(nowhere, "import", str(out), "--check", status=NO)["error"]["code"] == "ledger_broken"


def test_an_import_brings_it_into_another_database(shop: World, migrated_database: str, tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    facts(shop, "export", "-n", "shop", "--out", str(out))
    other = libpq_url(migrated_database)
    assert facts(other, "import", str(out), "--operator", "olga") == {"stored": 4, "known": 0}
    assert facts(other, "verify", "--against", str(out))["holds"] is True
    assert [n["intent"] for n in facts(other, "lineage", "charge", "-n", "shop")["nodes"]] == [
        "charge",
        "plan",
        "quote",
    ]


def reconcile(world: World, *arguments: str, stdin: str | None = None) -> Result:
    return run(
        world, "reconcile", *arguments, "-n", world.namespace, "--evidence", "log", "--operator", "olga", stdin=stdin
    )


def test_reconcile_records_each_outcome_and_says_what_it_unblocks(world: World) -> None:
    for intent in ("a", "b", "c"):
        world.put("failed", intent)
    done = reconcile(world, "a", "--attempt", "1", "--happened", '{"id": 7}')
    assert done.exit_code == DONE, done.output
    assert world.status("a").certificate.result == {"id": 7}
    assert "unblocks" in done.stderr
    assert reconcile(world, "b", "--attempt", "1", "--did-not-happen", "--basis", "holder-dead").exit_code == DONE
    assert world.state("b") == "released"
    assert reconcile(world, "c", "--attempt", "1", "--compensated", "--json").exit_code == DONE
    assert world.state("c") == "released"
    said = all_of(
        world.engine,
        "SELECT DISTINCT actor, evidence::json ->> 'evidence' FROM effectfence.transitions "
        "WHERE namespace = :namespace AND cause LIKE 'reconciled%'",
        namespace=world.namespace,
    )
    assert said == [("olga", "log")]


def test_reconcile_over_a_dead_closure_has_to_be_said(world: World) -> None:
    world.hold("base")
    reader = world.admit("reader", observes=("base",))
    world.fence.abort(world.ticket("base"), "rolled back")
    with pytest.raises(ClosureAborted):
        world.fence.commit(reader, "it ran")
    refused = reconcile(world, "reader", "--attempt", "1", "--happened", '"it ran"', "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "closure_aborted"
    assert reconcile(world, "reader", "--attempt", "1", "--happened", '"it ran"', "--over").exit_code == DONE
    assert world.status("reader").certificate.reconciled_over is not None


@pytest.mark.parametrize(
    ("arguments", "status", "field"),
    [
        (["--attempt", "1"], USAGE, None),
        (["--attempt", "1", "--compensated", "--did-not-happen"], USAGE, None),
        (["--attempt", "0", "--compensated"], USAGE, None),
        (["--compensated"], USAGE, None),
        (["--attempt", "1", "--happened", "{no json"], USAGE, "happened"),
        (["--attempt", "1", "--did-not-happen"], USAGE, "basis"),
        (["--attempt", "1", "--did-not-happen", "--basis", "hope"], USAGE, "basis"),
        (["--attempt", "1", "--compensated", "--over"], USAGE, "over"),
        (["--attempt", "1", "--compensated", "--basis", "holder-dead"], USAGE, "basis"),
    ],
)
def test_reconcile_refuses_what_makes_no_sense_and_changes_nothing(
    world: World, arguments: list[str], status: int, field: str | None
) -> None:
    world.put("failed")
    before = world.rows()
    done = reconcile(world, "charge:1", *arguments, "--json")
    assert done.exit_code == status, done.output
    if field is not None:
        assert json.loads(done.stdout)["error"]["facts"]["field"] == field
        assert "unblocks" not in done.stderr, "nothing is shown of what is not going to be"
    assert world.rows() == before


def test_reconcile_of_another_attempt_is_refused(world: World) -> None:
    world.put("failed")
    done = reconcile(world, "charge:1", "--attempt", "2", "--compensated", "--json")
    assert done.exit_code == NO
    assert json.loads(done.stdout)["error"]["code"] == "attempt_mismatch"


@pytest.mark.parametrize("state", ["committed", "executed", "released", "superseded"])
def test_reconcile_of_what_cannot_be_judged_shows_and_asks_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    world.put(state)
    before = world.rows()
    monkeypatch.setattr("effectfence_pg.cli.operate.on_a_terminal", lambda: True)
    chosen = ("--attempt", "1", "--did-not-happen", "--basis", "holder-dead")
    done = reconcile(world, "charge:1", *chosen, stdin="y\n")
    assert done.exit_code == NO
    assert "unblocks" not in done.stderr
    assert "Record it?" not in done.stderr
    said = json.loads(reconcile(world, "charge:1", *chosen, "--json").stdout)["error"]
    with pytest.raises((NotReconcilable, AttemptMismatch)) as refused:
        world.fence.reconcile(
            "charge:1", attempt=1, outcome="did_not_happen", basis="holder_dead", evidence="log", operator="o"
        )
    assert (said["code"], said["facts"]) == (refused.value.code, refused.value.as_dict()["facts"])
    assert world.rows() == before


@pytest.mark.parametrize(("answered", "state", "status"), [("n\n", "failed", NO), ("y\n", "released", DONE)])
def test_reconcile_asks_on_a_terminal(
    world: World, monkeypatch: pytest.MonkeyPatch, answered: str, state: str, status: int
) -> None:
    world.put("failed")
    monkeypatch.setattr("effectfence_pg.cli.operate.on_a_terminal", lambda: True)
    done = reconcile(world, "charge:1", "--attempt", "1", "--compensated", stdin=answered)
    assert done.exit_code == status
    assert world.state() == state


def test_sweep_and_settle_do_what_the_verbs_do(world: World) -> None:
    world.put("expired")
    assert facts(world, "sweep", "-n", world.namespace)["fenced"] == 1
    assert world.state() == "failed"
    world.admit("other")
    world.expire("other")
    assert facts(world, "settle", "-n", world.namespace) == {
        "namespace": world.namespace,
        "fenced": 1,
        "committed": 0,
        "aborted": 0,
    }


def test_stats_count_what_is_on_record(shop: World) -> None:
    counted = facts(shop, "stats", "-n", "shop")
    assert counted["certificates"] == one(shop.engine, "SELECT count(*) FROM effectfence.certificates")
    assert counted["attempts"] == sum(counted["states"].values()) == counted["causes"]["admitted"]
    assert "certificates" in run(shop, "stats").stdout


def test_doctor_looks_at_everything(shop: World) -> None:
    # The private server of a test run does without fsync, and is told what that means.
    durable = one(shop.engine, "SELECT current_setting('fsync')") == "on"
    found = facts(shop, "doctor", status=DONE if durable else NO)
    names = [check["name"] for check in found["checks"]]
    assert names == [
        "schema",
        "clock",
        "isolation",
        "durability",
        "standby",
        "grants",
        "leases",
        "hot_domains",
        "bloat",
        "long_transactions",
    ]
    assert found["level"] == ("warn" if durable else "fail")
    assert {check["name"] for check in found["checks"] if check["level"] != "ok"} <= {"leases", "durability"}
    leases = next(check for check in found["checks"] if check["name"] == "leases")
    assert leases["facts"]["expired"] == 1
    assert "sweep" in leases["detail"]
    assert "leases" in run(shop, "doctor").stdout


def test_doctor_names_a_hot_domain_missing_grants_and_a_server_that_forgets(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    world = World(engine, "shop")
    for number in range(22):
        world.commit(f"hot:{number}", domain="hot")
    change(
        engine,
        "UPDATE effectfence.effects SET admitted_at = clock_timestamp() + seq * interval '10 ms'",
        unguarded=True,
    )
    change(engine, "REVOKE SELECT ON effectfence.certificate_audit FROM effectfence_auditor")
    change(engine, f'ALTER DATABASE "{sa.make_url(migrated_database).database}" SET synchronous_commit = off')
    found = facts(world, "doctor", status=NO)
    checks = {check["name"]: check for check in found["checks"]}
    assert found["level"] == checks["durability"]["level"] == "fail"
    assert checks["hot_domains"]["facts"]["domains"][0]["domain"] == "hot"
    assert checks["grants"]["facts"]["missing"] == ["effectfence_auditor"]
    assert "grant_roles" in checks["grants"]["detail"]


def test_an_auditor_verifies_exports_and_walks_with_views_alone(shop: World, tmp_path: Path) -> None:
    url = url_as(shop.engine, "effectfence_auditor")
    assert facts(url, "verify")["holds"] is True
    assert facts(url, "unresolved")["count"] > 0
    assert len(facts(url, "lineage", "charge", "-n", "shop")["nodes"]) == 3
    assert facts(url, "export", "--out", str(tmp_path / "x"))["certificates"] == 4
    refused = facts(url, "sweep", "-n", "shop", status=DATABASE)
    assert refused["error"]["code"] == "permission_denied"


@pytest.mark.parametrize(
    "command",
    [
        ("intents", "list"),
        ("intents", "show", "x"),
        ("unresolved",),
        ("lineage", "x"),
        ("verify",),
        ("stats",),
        ("sweep",),
        ("settle",),
        ("reconcile", "x", "--attempt", "1", "--compensated", "--evidence", "x"),
    ],
)
def test_a_database_that_cannot_be_used_is_exit_status_3(fresh_database: str, command: tuple[str, ...]) -> None:
    never = facts(libpq_url(fresh_database), *command, status=DATABASE)
    assert never["error"]["code"] == "schema_version_error"
    nobody = facts("postgresql://nobody@127.0.0.1:1/nothing", *command, status=DATABASE)
    assert nobody["error"]["code"] == "database_unavailable"


def test_doctor_reports_a_database_that_was_never_migrated_as_a_failed_check(fresh_database: str) -> None:
    found = facts(libpq_url(fresh_database), "doctor", status=NO)
    schema = found["checks"][0]
    assert (found["level"], schema["name"], schema["level"]) == ("fail", "schema", "fail")
    assert schema["facts"] == {"version": None, "expected": SCHEMA_VERSION, "command": UPGRADE_COMMAND}
    assert UPGRADE_COMMAND in schema["detail"]
    assert {"clock", "isolation", "durability", "standby"} <= {check["name"] for check in found["checks"]}
    nobody = facts("postgresql://nobody@127.0.0.1:1/nothing", "doctor", status=DATABASE)
    assert nobody["error"]["code"] == "database_unavailable"


def test_verify_says_when_there_was_nothing_to_verify(migrated_database: str) -> None:
    nothing = run(libpq_url(migrated_database), "verify")
    assert nothing.exit_code == DONE
    assert "nothing to verify" in nothing.stdout
    assert "all of it holds" not in nothing.stdout


def test_figures_agree_with_their_nouns_and_a_handful_has_no_rate(migrated_database: str, tmp_path: Path) -> None:
    world = World(sa.create_engine(migrated_database, poolclass=sa.NullPool), "shop")
    world.commit("first")
    ledger = str(tmp_path / "ledger.jsonl")
    assert run(world, "export", "--out", ledger).stdout.startswith("1 certificate, ")
    assert run(world, "verify", "--against", ledger).stdout.startswith("1 certificate recomputed, digest ")
    assert "1 certificate of an earlier export" in run(world, "verify", "--against", ledger).stdout
    assert run(world, "import", ledger, "--check").stdout == "1 certificate verified\n"
    assert run(world, "import", ledger).stdout == "0 certificates stored, 1 known already\n"
    picture = run(world, "lineage", "first", "-n", "shop", "--out", str(tmp_path / "picture"))
    assert picture.stdout.startswith("1 effect, 0 edges: ")
    world.admit("late")
    world.expire("late")
    assert run(world, "sweep", "-n", "shop").stdout == "1 expired lease fenced\n"
    rates = {"certificates": 1000, "per_second": {"sql": 2000}}
    assert _rates(rates) == " (2,000 a second in sql)"
    assert _rates(rates | {"certificates": 999}) == ""


def test_reconcile_names_everything_that_is_missing_at_once(world: World) -> None:
    missing = run(world, "reconcile", "charge:1")
    assert missing.exit_code == USAGE
    for name in ("--attempt", "--evidence", "--happened", "--did-not-happen", "--compensated"):
        assert name in missing.stderr


@pytest.mark.parametrize("basis", ["holder-dead", "holder_dead"])
def test_a_basis_is_understood_in_either_spelling(world: World, basis: str) -> None:
    world.put("failed")
    assert reconcile(world, "charge:1", "--attempt", "1", "--did-not-happen", "--basis", basis).exit_code == DONE
    assert world.state() == "released"


def test_a_file_that_cannot_be_used_is_named_and_nothing_else_is_advised(shop: World, tmp_path: Path) -> None:
    missing = str(tmp_path / "nosuch.jsonl")
    for command in (("import", missing), ("verify", "--against", missing), ("export", "--out", f"{missing}/x")):
        done = run(shop, *command)
        assert done.exit_code == USAGE
        assert command[-1] in done.stderr
        assert "admitted" not in done.stderr


def test_a_ledger_that_was_cut_or_is_no_text_is_said_of_the_whole_file(shop: World, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    facts(shop, "export", "--out", str(file))
    cut = file.read_text().splitlines(keepends=True)[:-1]
    for content in ("".join(cut).encode(), b"\xff\xfe\x00"):
        file.write_bytes(content)
        done = run(shop, "import", str(file), "--check")
        assert done.exit_code == NO
        assert done.stderr.startswith("error: the ledger: it")
        assert "line 0" not in done.stderr


def test_a_database_that_is_not_there_is_told_in_sentences_with_what_to_check(shop: World) -> None:
    url = shop.engine.url.set(database="effectfence_never_made").render_as_string(hide_password=False)
    missing = run(libpq_url(url), "stats")
    assert missing.exit_code == DATABASE
    assert "does not exist" in missing.stderr
    refused = run("postgresql://nobody@127.0.0.1:1/nothing", "stats")
    assert "Connection refused. Is the server running" in refused.stderr
    for done in (missing, refused):
        assert "database, role and password" in done.stderr
        assert "call again" not in done.stderr


@pytest.mark.parametrize("given", [("--evidence", "words\udcff"), ("--evidence", "words", "--happened", '"\udcff"')])
def test_arguments_in_another_encoding_are_refused_by_their_name(shop: World, given: tuple[str, ...]) -> None:
    done = run(
        shop,
        "reconcile",
        "failed",
        "-n",
        "shop",
        "--attempt",
        "1",
        "--operator",
        "op",
        "--yes",
        *given,
        *(() if "--happened" in given else ("--compensated",)),
    )
    assert done.exit_code == USAGE, done.output
    assert given[-2].removeprefix("--") in done.output.replace("result", "happened")
    assert "lone surrogate" in done.output
