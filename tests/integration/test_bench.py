"""What `scripts/bench` promises: every figure, in both forms, and a server left as it was. No test judges a time."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from tests.support.servers import Databases, libpq_url

SCRIPTS = Path(__file__).parents[2] / "scripts"
NOBODY_LISTENS = "postgresql://somebody:secret@127.0.0.1:1/nothing"
GROUPS = ["core", "threads", "storm", "wal", "run", "closure", "audit"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program behind the script, in this process, which saves a second of imports."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("benchmarks.__main__")


def left_behind(databases: Databases) -> list[object]:
    with psycopg.connect(libpq_url(databases.admin_url)) as connection:
        return connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'effectfence_bench%'").fetchall()


def test_every_group_gives_its_figures_as_one_json_object(
    databases: Databases, bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = bench.Scale(
        repetitions=1,
        storms=1,
        blocks=1,
        block_operations=3,
        warm_up_operations=2,
        window_seconds=0.05,
        threads=3,
        stored_intents=10,
        attempts=20,
        storm_processes=1,
        storm_threads=3,
        equal_rounds=2,
        closure_members=20,
        closure_checks=1,
        audited_certificates=40,
        chain_effects=20,
    )
    assert bench.run(GROUPS, tiny, databases.admin_url, json=True) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["postgres"] == databases.version()
    assert answer["repetitions"] == 1
    results = {(one["group"], one["name"], one["synchronous_commit"]): one for one in answer["results"]}
    assert len(results) == len(answer["results"])
    assert list(dict.fromkeys(group for group, _, _ in results)) == GROUPS
    for mode in ("on", "off"):
        assert results["core", "fresh: prepare, commit", mode]["target"] == "<= 2.0"
        assert results["core", "replay", mode]["floor"] == "floor: SELECT"
        assert results["threads", "distinct intents, 10 stored", mode]["target"] == ">= 45 %"
        assert results["storm", "20 attempts: executions", mode]["value"] == 1
        assert results["run", "run", mode]["target"] == "<= 1.3"
    for kind in ("sync", "async"):
        equal = results["run", f"20 equal calls from 4 processes, {kind}: rounds with one execution", "on"]
        assert (equal["value"], equal["executions"]) == (2, 2)
    assert results["closure", "commit, 20 committed below", "on"]["floor"] == "commit, no history"
    assert results["closure", "commit check, 20 live members", "on"]["ratio_to_edges_alone"] > 0
    assert results["closure", "promote 2 to 20: slope", "on"]["target"] == "<= 1.1"
    assert results["audit", "lineage: depth", "on"]["target"] == "<= 3.0"
    assert results["audit", "verify in SQL", "on"]["per_second"] > 0
    for one in results.values():
        if one["unit"] == "us":
            assert one["median_us"] > 0
            assert one["group"] in {"closure", "run"} or one["client_cpu_us"] > 0
        if one["group"] == "core":
            assert (one["ratio"] is None) == (one["floor"] is None) == one["name"].startswith("floor")
        if one["group"] == "wal":
            assert one["transaction_ids"] >= 0
    assert not left_behind(databases)


def test_the_gateways_figures_are_beside_the_same_proxy_without_the_fence(
    databases: Databases, bench: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each mode starts four processes; that there are two of them is in the test of the other groups.
    monkeypatch.setattr("benchmarks.gateway.MODES", ("on",))
    tiny = bench.Scale(repetitions=1, blocks=1, block_operations=2, gateway_rounds=2, gateways=(1,))
    assert bench.run(["gateway"], tiny, databases.admin_url, json=True) == 0
    results = {(one["name"], one["synchronous_commit"]): one for one in json.loads(capsys.readouterr().out)["results"]}
    for name in ("a fresh call", "a replayed call"):
        assert results[name, "on"]["floor"] == "the proxy without the fence"
    assert results["time added to a fresh call", "on"]["target"] == "<= 1.5"
    assert results["12 identical calls through 1 gateways: rounds with one execution", "on"]["value"] == 2
    assert not left_behind(databases)


def test_people_get_a_table_on_stdout_and_progress_on_stderr(
    databases: Databases, bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["wal", "--quick", "--database-url", databases.admin_url]) == 0
    said = capsys.readouterr()
    assert f"PostgreSQL {databases.version()}" in said.out
    assert "100 replays" in said.out
    assert "wal: repetition 1 of 2" in said.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["weather"], 2, "there is no group 'weather'"),
        (["wal", "--database-url", "sqlite://"], 2, "sqlite is not supported"),
        (["wal", "--database-url", NOBODY_LISTENS], 3, "connection"),
    ],
)
def test_a_run_that_cannot_start_says_why_in_one_line(
    bench: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    try:
        ended = bench.main(arguments)
    except SystemExit as usage:
        ended = usage.code
    said = capsys.readouterr()
    assert ended == status
    assert words in said.err.splitlines()[-1]
    assert "secret" not in said.err
    assert not said.out
