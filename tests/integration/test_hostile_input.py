"""Whatever a command is given, or finds in a name: one object on stdout, an exit status, and nothing that a terminal obeys."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from effectfence_pg.audit import importing, ledger, verification
from effectfence_pg.audit.errors import LedgerBroken, LedgerConflict
from effectfence_pg.audit.reading import reading
from effectfence_pg.rendering import FORMATS
from effectfence_pg.values.certificates import HASHED_FIELDS, certificate_body
from tests.support import warm
from tests.support.servers import libpq_url
from tests.support.world import World

EVIL = 'a"<script>\x1b[31m\u2028\r\n\t`|\\|]--> {x} \u202e\u20ac'
NESTED = "[" * 50_000
BYTES = os.fsdecode(b"\xff\xfe")


def run(world: World, *arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[bytes]:
    url = libpq_url(world.engine.url.render_as_string(hide_password=False))
    env = {**os.environ, "EFFECTFENCE_DATABASE_URL": url, "PYTHONIOENCODING": encoding}
    return subprocess.run(
        warm.python("effectfence_pg", *arguments), env=env, capture_output=True, timeout=60, check=False
    )


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
    assert done.returncode in ({1, 2} if "error" in facts else {0})
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


BESIDE: dict[str, list[object]] = {
    "namespace": [5, None, "", "x" * 200, ["a"], "a\0b"],
    "attempt": ["x", 0, -1, 2**40, None, 1.5, True],
    "minted_at": ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", 5, "2020-01-01", None],
    "reconciled_over": [5, [], {"a": "\0"}],
    "identity_fields": ["cents", ["nope"], [5], {}],
    "observed": [
        "x",
        {},
        5,
        [["x"]],
        [["a", "b", "read_set"]],
        [["a", 1, "z"]],
        [["a", 1, "observes"]],
        [["sealed", 1, "observes"]],
        [[5, 1, "parent"]],
    ],
    "read_set": [[5], [{"domain": "d"}], [{"domain": "d", "seq": "x"}], [{"domain": "d", "seq": 2**70}]],
    "vector_clock": [[], {"a": "x"}, {"a": -1}, {"a": 2**70}],
    "seq": ["1", -1, 0, 2**70, 1.5, True],
    "parent": [5, "x"],
    "agent": [5, "", "y" * 3000],
    "tool": ["", None],
    "intent": [5, "x\0"],
}


@pytest.mark.parametrize("field", BESIDE)
def test_no_edited_ledger_gets_into_a_database(migrated_database: str, world: World, field: str) -> None:
    world.commit("sealed", read_set=world.fence.observe("other"))
    with reading(world.engine.url) as reader:
        file = io.StringIO(newline="\n")
        ledger.export(reader, file, namespace=world.namespace)
    line = json.loads(file.getvalue().split("\n")[0])
    for value in BESIDE[field]:
        edited = {**line, field: value}
        with contextlib.suppress(Exception):
            # Whoever edits a ledger can hash as well; what cannot be hashed is refused for that.
            edited["hash"] = sha256(certificate_body(**{name: edited[name] for name in HASHED_FIELDS})).hexdigest()
        digest = sha256(f"{edited['hash']} {edited['namespace']}\n".encode()).hexdigest()
        total = {"ledger": {"certificates": 1, "digest": digest}}
        forged = io.StringIO(f"{json.dumps(edited)}\n{json.dumps(total)}\n", newline="\n")
        with pytest.raises((LedgerBroken, LedgerConflict)), reading(migrated_database, writes=True) as writer:
            importing.bring_in(writer, forged, operator="mallory")
    with reading(migrated_database) as reader:
        assert verification.verify(reader).certificates == 0
