"""What the README shows runs as it stands, and what it links to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.servers import libpq_url

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def example(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no example called {name}"
    return found[1]


def run(code: str, url: str) -> str:
    environment = os.environ | {"EFFECTFENCE_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quickstart_charges_once_and_replays_the_same_certificate(migrated_database: str) -> None:
    first = run(example("quickstart"), migrated_database)
    assert first == run(example("quickstart"), migrated_database)
    assert re.fullmatch(r"\{'charge_id': 'ch_1'\} [0-9a-f]{64}\n", first)


def test_the_repository_example_pays_once(migrated_database: str) -> None:
    counted = (
        "import os, sqlalchemy as sa\n"
        "engine = sa.create_engine(os.environ['EFFECTFENCE_DATABASE_URL'])\n"
        "with engine.connect() as c: print(c.scalar(sa.text('SELECT count(*) FROM payouts')))\n"
        "engine.dispose()\n"
    )
    for _ in range(2):
        run(example("repository"), migrated_database)
    assert run(counted, migrated_database) == "1\n"


def test_the_incident_takes_the_deployment_back_with_what_it_rested_on(migrated_database: str) -> None:
    shown = run(example("speculation"), migrated_database).splitlines()
    assert shown[0] == "[('deploy', 'executed'), ('write', 'executed')]"
    assert shown[1].startswith("closure_aborted")
    assert shown[2] == "{'X': 0}"


def test_a_request_runs_once_and_a_row_is_written_once(migrated_database: str) -> None:
    first, again = run(example("run"), migrated_database), run(example("run"), migrated_database)
    assert (first, again) == ("faxing\nsent False\n", "sent True\n")
    with psycopg.connect(libpq_url(migrated_database)) as connection:
        assert connection.execute("SELECT count(*) FROM ledger").fetchall() == [(1,)]


def test_a_decorated_function_charges_once(migrated_database: str) -> None:
    first, again = run(example("tool"), migrated_database), run(example("tool"), migrated_database)
    assert first.splitlines()[0] == "charging 7"
    assert "charging" not in again
    assert first.splitlines()[1:] == again.splitlines() == [first.splitlines()[1]] * 2
    assert "ch_7" in again


def test_a_decorated_coroutine_is_not_sent_again_while_nobody_knows(migrated_database: str) -> None:
    said = run(example("async tool"), migrated_database).splitlines()
    assert said[:2] == ["sending 7", "timed out"]
    assert said[2].startswith("[intent_failed] ")
    assert "Do not retry" in said[2]
    assert len(said) == 3


def test_what_an_operator_says_makes_the_mail_runnable_again(migrated_database: str, tmp_path: Path) -> None:
    assert run(example("async tool"), migrated_database).count("sending 7") == 1
    assert "sending" not in run(example("async tool"), migrated_database)
    found = re.search(r"```sh\n(effectfence-pg reconcile .*?)```", README, re.DOTALL)
    assert found
    shell(found[1], migrated_database, tmp_path)
    assert run(example("async tool"), migrated_database).count("sending 7") == 1


def shell(commands: str, url: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"EFFECTFENCE_DATABASE_URL": url, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", commands], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_paste_of_the_gateway_proves_a_double_fire_and_then_prevents_it(
    migrated_database: str, tmp_path: Path
) -> None:
    found = re.search(r"<!-- gateway -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found
    # It is installed, and the database is the test's own.
    paste = "\n".join(line for line in found[1].splitlines() if not line.startswith(("pip ", "export ")))
    raw, fenced, lines = shell(paste, migrated_database, tmp_path).splitlines()
    assert raw.startswith("proven double fire: charge ran at least 12 times")
    assert fenced.startswith("inconclusive: 12 of 12 calls answered, 1 different answers")
    assert lines.split() == ["13"]


LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", README)))


@pytest.mark.parametrize("link", LINKS)
def test_what_the_readme_links_to_is_there(link: str) -> None:
    assert (ROOT / link).exists()
