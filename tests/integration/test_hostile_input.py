"""Whatever a command is given, or finds in a name: one object on stdout, an exit status, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from effectfence_pg.rendering import FORMATS
from tests.support.servers import libpq_url
from tests.support.world import World

EVIL = 'a"<script>\x1b[31m\u2028\r\n\t`|\\|]--> {x} \u202e\u20ac'
NESTED = "[" * 50_000
BYTES = os.fsdecode(b"\xff\xfe")


def run(world: World, *arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[bytes]:
    url = libpq_url(world.engine.url.render_as_string(hide_password=False))
    env = {**os.environ, "EFFECTFENCE_DATABASE_URL": url, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "effectfence_pg", *arguments]
    return subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("intents", "show", BYTES),
        ("intents", "list", "--domain", "d", "--after", "\N{SUPERSCRIPT TWO}"),
        ("stats", "--namespace", BYTES),
        ("lineage", EVIL, "--out", "/dev/full"),
        ("export", "--out", "/dev/full"),
        ("import", sys.executable),
        ("verify", "--against", sys.executable),
        ("reconcile", "f", "--attempt", "1", "--evidence", "e", "--happened", NESTED),
    ],
    ids=lambda given: " ".join(given)[:30],
)
def test_json_is_always_one_object(world: World, arguments: tuple[str, ...]) -> None:
    world.commit(EVIL, "done")
    tenant = () if arguments[0] in {"stats", "import"} else ("--namespace", world.namespace)
    done = run(world, *arguments, *tenant, "--json")
    assert b"Traceback" not in done.stderr
    facts = json.loads(done.stdout)
    assert done.returncode == (1 if "error" in facts else 0)
    assert ("error" in facts) == (arguments[0] != "intents" or BYTES in arguments)


def test_evidence_that_is_no_json_is_words(world: World) -> None:
    world.put("failed", "f")
    done = run(
        world,
        "reconcile",
        "f",
        "-n",
        world.namespace,
        "--attempt",
        "1",
        "--evidence",
        NESTED,
        "--compensated",
        "--json",
    )
    assert json.loads(done.stdout)["state"] == "released", done.stderr


def test_names_do_nothing_to_a_terminal(world: World) -> None:
    world.commit(EVIL, "done", tool=EVIL, agent=EVIL, domain=EVIL)
    tenant = ("-n", world.namespace)
    for arguments in (
        ("intents", "list"),
        ("intents", "show", EVIL),
        *(("lineage", EVIL, "--format", f) for f in FORMATS),
    ):
        done = run(world, *arguments, *tenant)
        assert done.returncode == 0, done.stderr
        assert all(line.isprintable() for line in done.stdout.decode().split("\n")), arguments
    with world.engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        edit = "UPDATE effectfence.effects SET result = '1' WHERE namespace = :namespace"
        connection.execute(sa.text(edit), {"namespace": world.namespace})
    for arguments in (("verify",), ("reconcile", f"{EVIL}?", "--attempt", "1", "--evidence", "e", "--compensated")):
        done = run(world, *arguments, *tenant)
        assert done.returncode == 1
        assert all(line.isprintable() for line in (done.stdout + done.stderr).decode().split("\n")), arguments


def test_what_programs_read_is_utf8_whatever_the_terminal_says(world: World, tmp_path: Path) -> None:
    world.commit(EVIL, EVIL)
    tenant = ("-n", world.namespace)
    exported = run(world, "export", *tenant, encoding="ascii")
    assert exported.returncode == 0, exported.stderr
    file = tmp_path / "ledger"
    file.write_bytes(exported.stdout)
    checked = run(world, "import", str(file), "--check", "--json", encoding="ascii")
    assert json.loads(checked.stdout) == {"verified": 1}
    shown = run(world, "intents", "show", EVIL, *tenant, "--json", encoding="ascii")
    assert json.loads(shown.stdout)["intent"] == EVIL
