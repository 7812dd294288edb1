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
import sqlalchemy as sa
from typer.testing import CliRunner, Result

from effectfence_pg import Fence
from effectfence_pg.cli.app import app
from effectfence_pg.embedded import PrivateServer
from effectfence_pg.embedded.binaries import BIN_VARIABLE
from effectfence_pg.embedded.places import STATE_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE
from effectfence_pg.sql.tables import SCHEMA_VERSION
from tests.support.roles import url_as
from tests.support.rows import change
from tests.support.servers import libpq_url, occupied, scratch_directory

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


def test_the_url_of_a_private_server_stays_good_across_stop_and_start(state: dict[str, str]) -> None:
    url = db("url", **state).stdout
    assert db("stop", **state).exit_code == DONE
    assert db("start", **state).exit_code == DONE
    assert db("url", **state).stdout == url
    with psycopg.connect(libpq_url(url.strip())) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_every_db_command_acts_on_the_private_server_whose_url_is_in_the_environment(state: dict[str, str]) -> None:
    url = db("url", **state).stdout
    exported = state | {DATABASE_VARIABLE: url.strip()}
    stopped = db("stop", **exported)
    assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (DONE, "stopped\n", "")
    status = db("status", "--json", **exported)
    assert (status.exit_code, json.loads(status.stdout)["source"]) == (NO, "private")
    assert db("start", **exported).exit_code == DONE
    assert db("status", **exported).exit_code == DONE
    assert db("url", **exported).stdout == url
    assert json.loads(db("stop", "--json", "--database-url", url.strip(), **state).stdout)["stopped"] is True


def test_a_private_url_from_before_its_port_was_taken_still_names_the_server(state: dict[str, str]) -> None:
    url = db("url", **state).stdout.strip()
    assert db("stop", **state).exit_code == DONE
    exported = state | {DATABASE_VARIABLE: url}
    with occupied(sa.make_url(url).port):
        moved = db("url", **exported).stdout.strip()
        assert moved != url
        assert sa.make_url(moved).set(port=1) == sa.make_url(url).set(port=1)
        used = CliRunner().invoke(app, ["stats"], env=exported)
        assert used.exit_code == DONE, used.output
        assert f":{sa.make_url(moved).port} " in used.stderr


def test_a_private_server_that_has_to_start_first_says_so_and_one_that_runs_does_not(state: dict[str, str]) -> None:
    assert db("stop", **state).exit_code == DONE
    first = CliRunner().invoke(app, ["stats"], env=state)
    assert [line.split()[0] for line in first.stderr.splitlines()] == ["starting", "using"]
    with PrivateServer(Path(json.loads(db("status", "--json", **state).stdout)["data_directory"])):
        second = CliRunner().invoke(app, ["stats"], env=state)
    assert [line.split()[0] for line in second.stderr.splitlines()] == ["using"]
    assert "the private server" in second.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("verify",),
        ("export",),
        ("unresolved",),
        ("intents", "list"),
        ("intents", "show", "x"),
        ("lineage", "x"),
        ("stats",),
        ("doctor",),
        ("sweep",),
        ("settle",),
        ("import", os.devnull),
        ("reconcile", "x", "--attempt", "1", "--compensated", "--evidence", "x"),
    ],
)
def test_who_looks_at_the_record_is_never_given_an_empty_database(tmp_path: Path, command: tuple[str, ...]) -> None:
    asked = CliRunner().invoke(app, list(command), env={STATE_VARIABLE: str(tmp_path), DATABASE_VARIABLE: ""})
    assert (asked.exit_code, asked.stdout) == (USAGE, "")
    assert "no database is named" in asked.stderr
    assert not list(tmp_path.glob("*/data"))


@pytest.mark.parametrize(
    "command", [("verify",), ("stats",), ("storm",), ("db", "url"), ("db", "upgrade"), ("db", "stop")]
)
def test_an_empty_database_url_is_wrong_usage(command: tuple[str, ...], database_url: str) -> None:
    asked = CliRunner().invoke(app, [*command, "--database-url", ""], env={DATABASE_VARIABLE: libpq_url(database_url)})
    assert (asked.exit_code, asked.stdout) == (USAGE, "")
    assert "empty" in asked.stderr


def test_the_database_that_is_used_is_named_without_its_password(database_url: str) -> None:
    url = sa.make_url(database_url).set(password="hush").render_as_string(hide_password=False)
    asked = CliRunner().invoke(app, ["stats", "--database-url", libpq_url(url)])
    assert asked.stderr.startswith(f"using database {sa.make_url(url).database} on ")
    assert "(--database-url)" in asked.stderr
    assert "hush" not in asked.stderr


def test_db_upgrade_migrates_a_given_database_once_and_says_from_where(fresh_database: str) -> None:
    done = db("upgrade", "--json", **{DATABASE_VARIABLE: libpq_url(fresh_database)})
    assert done.exit_code == DONE, done.output
    facts = json.loads(done.stdout)
    assert (facts["source"], facts["before"], facts["after"]) == ("environment", None, SCHEMA_VERSION)
    with Fence(fresh_database) as fence:
        assert fence.current("order:1") == 0
    again = db("upgrade", "--database-url", fresh_database)
    assert (again.exit_code, "was there already" in again.stdout) == (DONE, True)


def test_the_command_that_the_error_names_mends_the_database(fresh_database: str) -> None:
    given = {DATABASE_VARIABLE: libpq_url(fresh_database)}
    refused = CliRunner().invoke(app, ["verify", "--json"], env=given)
    command = json.loads(refused.stdout)["error"]["facts"]["command"].split()
    assert command[0] == "effectfence-pg"
    assert CliRunner().invoke(app, command[1:], env=given).exit_code == DONE
    assert CliRunner().invoke(app, ["verify"], env=given).exit_code == DONE


def test_db_upgrade_refuses_a_newer_database_and_a_role_without_rights_in_one_line(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    change(engine, "UPDATE effectfence.alembic_version SET version_num = '9999'")
    newer = db("upgrade", "--json", "--database-url", migrated_database)
    assert newer.exit_code == DATABASE
    assert json.loads(newer.stdout)["error"]["facts"]["command"] == "pip install --upgrade effectfence-pg"
    auditor = url_as(engine, "effectfence_auditor")
    change(engine, "UPDATE effectfence.alembic_version SET version_num = '0001'")
    refused = db("upgrade", "--database-url", auditor)
    assert refused.exit_code == DATABASE
    assert len(refused.stderr.splitlines()) == 1
    assert "cannot be reached" not in refused.stderr
