"""A short run of `scripts/chaos`; and its promises can be broken, one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.rows import change
from tests.support.world import World

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def chaotic(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import chaotic.books
    import chaotic.promises

    return chaotic


def test_no_promise_breaks_when_the_server_crashes_during_a_storm() -> None:
    arguments = ["--rounds", "1", "--intents", "30", "--duplicates", "4", "--threads", "3", "--crashes", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "chaotic", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent)])},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["holds"], facts["broken"]) == (True, [])
    assert facts["crashes"] == 2
    assert facts["attempts"] >= 120
    assert 0 < facts["acknowledged"] <= facts["committed"] <= facts["executions"] <= 30


Tamper = Callable[[World, Any], object]


def executed(world: World, books: Any, **other: Any) -> None:
    row = world.effect()
    facts = {"intent": "charge:1", "attempt": 1, "token": str(row["token"])}
    books.note("executed", **{**facts, **other})


def rewrite(world: World, table: str, assignment: str) -> int:
    statement = f"UPDATE effectfence.{table} SET {assignment} WHERE namespace = :namespace"
    return change(world.engine, statement, namespace=world.namespace)


BREAKS: dict[str, Tamper] = {
    "a committed effect has its certificate": lambda world, _: (
        world.admit("charge:2"),
        world.edit("charge:2", state="committed", result='"never"'),
    ),
    "nothing else has one": lambda world, _: world.edit("charge:1", state="failed"),
    "every certificate holds": lambda world, _: world.edit("charge:1", result='"another"'),
    "a number of a domain is given once": lambda world, _: rewrite(world, "domains", "seq = 0"),
    "committed, in flight or fenced": lambda world, _: world.put("released", "charge:2"),
    "current attempt is on record": lambda world, _: rewrite(world, "intents", "attempt = 9"),
    "ends with its state": lambda world, _: (
        world.put("failed", "charge:2"),
        world.edit("charge:2", state="in_flight", lease_expires_at="now"),
    ),
    "an error came out of the library": lambda _, books: books.note("error", code="KeyError", message="x"),
    "executions never exceed admitted attempts": executed,
    "an attempt runs once": executed,
    "no admission without a committed row": lambda world, books: executed(world, books, intent="charge:9"),
    "nothing is certified that did not happen": lambda world, _: world.commit("charge:2"),
    "what was answered stays true": lambda _, books: books.note("acknowledged", intent="charge:1", hash="0" * 64),
    "replayed": lambda _, books: books.note("replayed", intent="charge:1", hash="0" * 64),
}


@pytest.mark.parametrize("promise", [None, *BREAKS], ids=lambda promise: promise or "nothing broken")
def test_a_broken_promise_is_found(
    promise: str | None, chaotic: ModuleType, engine: sa.Engine, world: World, tmp_path: Path
) -> None:
    books = chaotic.books.Books(str(tmp_path / "books"))
    certificate = world.commit()
    executed(world, books)
    books.note("acknowledged", intent="charge:1", hash=certificate.hash)
    if promise is not None:
        BREAKS[promise](world, books)
    found = chaotic.promises.broken(engine, world.namespace, books)
    assert any(promise in one for one in found) if promise else found == [], found
