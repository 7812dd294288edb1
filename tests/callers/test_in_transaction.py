"""run_in_transaction: an effect of the same database happens exactly once, and no outcome of it is ever unknown."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from effectfence_pg import (
    AsyncFence,
    ClosurePending,
    Fence,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    Ran,
    ResultNotRecordable,
    UnknownIntent,
    current_effect,
)
from tests.support.named import steady
from tests.support.proxy import Cut, Proxy
from tests.support.racing import Race
from tests.support.rows import change, one
from tests.support.world import World

INSERT = "INSERT INTO payouts (namespace, id) VALUES (:namespace, :id)"


@pytest.fixture(autouse=True)
def payouts(engine: sa.Engine) -> None:
    """A table of the caller's own. No constraint keeps a row from being there twice: that is what is counted."""
    with engine.begin() as connection:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7)"))
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS payouts (namespace text, id text, worth int DEFAULT 0)"))


def paid(world: World) -> int:
    return one(world.engine, "SELECT count(*) FROM payouts WHERE namespace = :n", n=world.namespace)


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, world: World) -> Callable[..., Ran[Any]]:
    """Both kinds of fences, on a URL or on the run's database."""

    def run(asked: Any, function: Callable[[Any], Any], url: str | None = None) -> Ran[Any]:
        where = url or world.engine.url.render_as_string(hide_password=False)
        if request.param == "sync":
            with Fence(where, namespace=world.namespace) as fence:
                return fence.run_in_transaction(asked, function)

        async def main() -> Ran[Any]:
            async with AsyncFence(where, namespace=world.namespace) as fence:

                async def awaited(connection: AsyncConnection) -> Any:
                    return await connection.run_sync(function)

                return await fence.run_in_transaction(asked, awaited)

        return asyncio.run(main())

    return run


def pay(world: World) -> Callable[[sa.Connection], Any]:
    def function(connection: sa.Connection) -> Any:
        connection.execute(sa.text(INSERT), {"namespace": world.namespace, "id": current_effect().intent})
        return {"paid": current_effect().attempt}

    return function


def test_the_row_and_the_certificate_are_there_together_and_once(world: World, run: Callable[..., Ran[Any]]) -> None:
    first, second = run(world.request(), pay(world)), run(world.request(), pay(world))
    assert (first.result, first.replayed, second.result, second.replayed) == ({"paid": 1}, False, {"paid": 1}, True)
    assert first.certificate == second.certificate
    assert paid(world) == 1


def test_an_error_leaves_nothing_at_all(world: World, run: Callable[..., Ran[Any]]) -> None:
    def failing(connection: sa.Connection) -> None:
        pay(world)(connection)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run(world.request(), failing)
    assert paid(world) == 0
    assert all(found == [] for found in world.rows().values())
    assert run(world.request(), pay(world)).result == {"paid": 1}


@pytest.mark.parametrize("result", [object(), {"when": {1, 2}}, float("nan")], ids=steady)
def test_a_result_without_a_json_form_undoes_all_of_it_and_is_told_so(
    world: World, run: Callable[..., Ran[Any]], result: Any
) -> None:
    def function(connection: sa.Connection) -> Any:
        pay(world)(connection)
        return result

    with pytest.raises(ResultNotRecordable) as refused:
        run(world.request(), function)
    assert "did run" not in refused.value.advice
    assert "rolled back" in refused.value.advice
    assert paid(world) == 0
    assert all(found == [] for found in world.rows().values())
    # A ticket of one's own is another matter: its tool has run.
    with pytest.raises(ResultNotRecordable) as kept:
        world.fence.commit(world.admit(), result)
    assert "did run" in kept.value.advice


def test_what_waits_for_a_decision_is_undone_and_is_told_so(world: World, run: Callable[..., Ran[Any]]) -> None:
    world.hold("base")
    with pytest.raises(ClosurePending) as refused:
        run(world.request("payout", observes=("base",)), pay(world))
    assert [blocker.intent for blocker in refused.value.blockers] == ["base"]
    assert "did run" not in refused.value.advice
    assert paid(world) == 0
    with pytest.raises(UnknownIntent):
        world.fence.status("payout")


def test_a_refusal_calls_nothing(world: World, run: Callable[..., Ran[Any]]) -> None:
    world.put("failed")
    with pytest.raises(IntentFailed):
        run(world.request(), lambda _: pytest.fail("called"))
    with pytest.raises(IntentMismatch):
        run(world.request(args="others"), lambda _: pytest.fail("called"))
    world.admit("held")
    with pytest.raises(IntentInFlight):
        run(world.request("held"), lambda _: pytest.fail("called"))


@pytest.mark.parametrize("conflicts", [1, 3])
def test_a_conflict_runs_all_of_it_again(world: World, run: Callable[..., Ran[Any]], conflicts: int) -> None:
    """Somebody changes what the function has read, before it writes the same row: 40001 in the function."""
    change(world.engine, INSERT, namespace=world.namespace, id="account")
    called: list[int] = []

    def function(connection: sa.Connection) -> str:
        read = "SELECT worth FROM payouts WHERE namespace = :n AND id = 'account'"
        connection.execute(sa.text(read), {"n": world.namespace})
        called.append(1)
        write = "UPDATE payouts SET worth = worth + 1 WHERE namespace = :n AND id = 'account'"
        if len(called) <= conflicts:
            change(world.engine, write, n=world.namespace)
        connection.execute(sa.text(write), {"n": world.namespace})
        return "done"

    assert run(world.request(), function).result == "done"
    assert len(called) == conflicts + 1
    worth = "SELECT worth FROM payouts WHERE namespace = :n AND id = 'account'"
    assert one(world.engine, worth, n=world.namespace) == conflicts + 1


@pytest.mark.parametrize("state", ["40001", "40P01", "53200", "23505"])
def test_what_passes_runs_all_of_it_again_and_pays_once(world: World, run: Callable[..., Ran[Any]], state: str) -> None:
    """The table of predicate locks is full, or a rival is seen as a unique violation: the next round meets another moment."""
    called: list[int] = []

    def function(connection: sa.Connection) -> str:
        connection.execute(sa.text(INSERT), {"namespace": world.namespace, "id": "7"})
        called.append(1)
        if len(called) == 1:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{state}'; END $$")
        return "paid"

    assert run(world.request(), function).result == "paid"
    assert (len(called), paid(world)) == (2, 1)


@pytest.mark.parametrize("cut", Cut)
def test_a_connection_lost_around_commit_neither_loses_nor_doubles_it(
    world: World, run: Callable[..., Ran[Any]], proxy: Proxy, cut: Cut
) -> None:
    proxy.cut(cut)
    ran = run(world.request(), pay(world), proxy.url)
    assert proxy.pending == 0
    assert ran.result == {"paid": 1}
    assert ran.replayed == (cut is Cut.AFTER_COMMIT)
    assert paid(world) == 1


def test_equal_calls_at_the_same_moment_pay_once(world: World) -> None:
    together = threading.Barrier(8, timeout=30)

    def call() -> Any:
        together.wait()
        return world.fence.run_in_transaction(world.request(), pay(world))

    answers = Race([call] * 8).start().results()
    assert [type(answer) for answer in answers] == [Ran] * 8, answers
    assert [answer.replayed for answer in answers].count(False) == 1
    assert paid(world) == 1


KILLED = """
import os, signal, sys
from sqlalchemy import text
from effectfence_pg import EffectRequest, Fence
url, namespace = sys.argv[1:]
request = EffectRequest(intent="charge:1", domain="of:charge:1", tool="charge", agent="agent-a", args={"cents": 4900})
def pay(connection):
    connection.execute(text("INSERT INTO payouts (namespace, id) VALUES (:n, 'x')"), {"n": namespace})
    os.kill(os.getpid(), signal.SIGKILL)
Fence(url, namespace=namespace).run_in_transaction(request, pay)
"""


def test_a_process_that_is_killed_in_the_middle_leaves_nothing(world: World, run: Callable[..., Ran[Any]]) -> None:
    url = world.engine.url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, url, world.namespace],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert run(world.request(), pay(world)).result == {"paid": 1}
    assert paid(world) == 1
