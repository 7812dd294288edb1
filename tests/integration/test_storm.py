"""What `effectfence-pg storm` promises: one execution, every attempt accounted for, and an honest exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from effectfence_pg import Fence
from effectfence_pg.cli import storm
from effectfence_pg.cli.app import app
from effectfence_pg.cli.storm_worker import CONNECTIONS, Racers, Share, Storm, Tally
from tests.support import warm
from tests.support.rows import all_of, one
from tests.support.servers import libpq_url
from tests.support.until import until

DONE, NO, USAGE, DATABASE = 0, 1, 2, 3
FACTS = {
    "attempts",
    "executions",
    "replayed",
    "stood_down",
    "elapsed_ms",
    "processes",
    "threads",
    "postgres",
    "namespace",
}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm.python("effectfence_pg", "storm", *arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
    )


def test_one_attempt_of_all_processes_executes_and_the_others_are_accounted_for(
    database_url: str, engine: sa.Engine
) -> None:
    done = run("--attempts", "200", "--threads", "5", "--processes", "2", "--json", "--database-url", database_url)
    assert done.returncode == DONE, done.stderr
    facts = json.loads(done.stdout)
    name = sa.make_url(database_url).database
    [said] = done.stderr.splitlines()
    assert said.startswith(f"writing to namespace {facts['namespace']} of database {name} on ")
    assert facts.keys() >= FACTS
    assert (facts["attempts"], facts["processes"], facts["threads"], facts["executions"]) == (200, 2, 5, 1)
    assert facts["replayed"] + facts["stood_down"] == 199
    # The half that starts after the seal finds it, every one of them.
    assert facts["replayed"] >= 100
    assert facts["postgres"] == one(engine, "SHOW server_version").split()[0]
    minted = "SELECT hash FROM effectfence.certificates WHERE namespace = :namespace"
    assert all_of(engine, minted, namespace=facts["namespace"]) == [facts["certificate"]]


def test_people_read_what_was_prevented_in_dollars(database_url: str) -> None:
    given = {"EFFECTFENCE_DATABASE_URL": libpq_url(database_url)}
    done = run("--attempts", "3", "--threads", "1", "--processes", "1", "--late", "1", **given)
    assert done.returncode == DONE, done.stderr
    lines = {tuple(part.strip() for part in line.rsplit("  ", 1)) for line in done.stdout.splitlines()}
    assert {
        ("actual executions", "1"),
        ("served the sealed certificate", "2"),
        ("told to stand down", "0"),
        ("double charges prevented", "2 = $98.00"),
    } <= lines
    assert "verified" in done.stdout
    assert "1 process x 1 thread," in done.stdout


def test_a_storm_that_is_killed_leaves_nobody_racing(database_url: str, engine: sa.Engine) -> None:
    command = ["storm", "--attempts", "1000000", "--threads", "2", "--processes", "2", "--database-url", database_url]
    racers = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'effectfence-storm' AND datname = current_database()"
    )
    raced = "SELECT count(*) FROM effectfence.effects WHERE namespace = :namespace AND state = 'committed'"
    # Nobody cleans up after it.
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "effectfence_pg", *command],
            env={**os.environ, "TMPDIR": folder},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr
        namespace = process.stderr.readline().split()[3]
        until(lambda: one(engine, raced, namespace=namespace))
        assert len(all_of(engine, racers)) == 4
        process.kill()
        until(lambda: not all_of(engine, racers))
        process.communicate()


def test_it_runs_what_is_installed_whatever_lies_in_the_folder_where_it_is_started(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "effectfence_pg").mkdir()
    (tmp_path / "effectfence_pg" / "__init__.py").write_text("raise SystemExit('another one')")
    command = [Path(sys.executable).with_name("effectfence-pg"), "storm", "--attempts", "4", "--threads", "1"]
    done = subprocess.run(
        [*command, "--processes", "1", "--database-url", database_url], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == DONE, done.stderr


def test_it_runs_where_the_temporary_folder_has_a_long_name(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    command = [sys.executable, "-m", "effectfence_pg", "storm", "--attempts", "4", "--threads", "1", "--processes", "1"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run([*command, "--database-url", database_url], env=environment, capture_output=True, check=False)
    assert done.returncode == DONE, done.stderr
    assert not list(folder.iterdir())


def test_a_database_that_was_given_is_not_migrated(fresh_database: str) -> None:
    done = run("--json", "--database-url", fresh_database)
    assert done.returncode == DATABASE
    assert json.loads(done.stdout)["error"]["code"] == "schema_version_error"
    assert "effectfence-pg db upgrade" in done.stderr


def test_a_database_that_does_not_answer_is_no_verdict() -> None:
    done = run("--json", "--database-url", "postgresql://somebody:secret@127.0.0.1:1/nothing")
    assert done.returncode == DATABASE
    assert json.loads(done.stdout)["error"]["code"] == "database_unavailable"
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--attempts", "0"], ["--late", "1.5"], ["--processes", "0"], ["--threads", "x"], ["--wrong"]],
    ids=str,
)
def test_wrong_usage_has_a_status_of_its_own(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["storm", *arguments]).exit_code == USAGE


def pretend(monkeypatch: pytest.MonkeyPatch, charges: int, **tally: Any) -> None:
    """Let the storm be one thread of this process, and see so many charges in the books and such a report."""

    def race(shares: list[Share], _attempts: int) -> list[Tally]:
        (share,) = shares
        with Fence(share.url, namespace=share.namespace) as fence:
            found = Racers(share, threading.Barrier(1), threading.Event(), [0]).run(fence)
        books = Path(share.books)
        assert len(books.read_text(encoding="utf-8").splitlines()) == 1
        books.write_text("".join(f"charge {number}\n" for number in range(charges)), encoding="utf-8")
        for name, value in tally.items():
            setattr(found, name, value)
        return [found]

    monkeypatch.setattr(storm, "_race", race)


@pytest.mark.parametrize(
    ("charges", "tally", "status"),
    [
        (1, {}, DONE),
        (2, {}, NO),
        (0, {}, NO),
        (1, {"replayed": 2}, NO),
        (1, {"executed": 2}, NO),
        (1, {"certificates": {"another"}}, NO),
        (1, {"errors": [("ZeroDivisionError", "x")]}, NO),
        (1, {"errors": [("database_unavailable", "it went away")]}, DATABASE),
    ],
    ids=[
        "as it was",
        "charged twice",
        "not charged",
        "one unaccounted for",
        "two say so",
        "two certificates",
        "error",
        "gone",
    ],
)
def test_anything_but_one_execution_and_a_full_account_fails(
    charges: int, tally: dict[str, Any], status: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, charges, **tally)
    arguments = ["storm", "--attempts", "4", "--threads", "1", "--processes", "1", "--database-url", database_url]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == status, done.output
    assert ("NOT" in done.stdout) == (status != DONE)


@pytest.mark.parametrize("late", [0, 0.25, 0.5, 1])
@pytest.mark.parametrize(("attempts", "threads", "processes"), [(1, 1, 1), (10, 4, 3), (1000, 25, 4), (7, 3, 64)])
def test_every_attempt_is_dealt_out_and_at_least_one_of_them_races(
    attempts: int, threads: int, processes: int, late: float
) -> None:
    shares = Storm(attempts, threads, processes, late, namespace="n").shares("url", "books")
    racing, coming_late = (sum(sum(getattr(share, wave)) for share in shares) for wave in ("racing", "late"))
    assert racing + coming_late == attempts
    assert racing == max(1, attempts - round(attempts * late))
    assert all(len(share.racing) == len(share.late) == threads for share in shares)
    assert 0 < sum(share.connections for share in shares) <= CONNECTIONS
