"""Faults that people reported of hosts, servers and networks, in front of a gateway: what really happened is counted outside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from effectfence_pg import Fence
from tests.support.faces import TOKEN, gateway, over_http, parameters, policy, refusal, run, serving, upstream
from tests.support.proxy import Cut, Proxy
from tests.support.rows import all_of, expire_lease
from tests.support.until import auntil, until
from tests.support.wire import HELLO, asked, spawned
from tests.support.witness import Witness

REPLAY = "effectfence/replay"
NAMED = '[[tool]]\nmatch = "*"\nintent = "{what}"\naction = "fence"\n'


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


@contextlib.contextmanager
def served(url: str, books: Witness, policy: str, *, fresh: bool = False) -> Iterator[tuple[str, Any]]:
    """A gateway over HTTP."""
    with serving(
        "gateway", "--database-url", url, "--policy", policy, "--", *upstream(books.path), fresh=fresh
    ) as found:
        yield found


def test_a_host_that_sends_every_call_twice_reaches_the_upstream_once_and_both_are_answered(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    """F31."""
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), *options)) as client:
            for number in range(5):
                call = {"name": "charge", "arguments": {"x": str(number)}}
                first = asyncio.create_task(client.call_tool(**call))
                await asyncio.sleep(0.003)  # what the host does
                second = await client.call_tool(**call)
                assert (await first).structured_content == second.structured_content
                assert not second.is_error

    run(main())
    assert books.count("charge") == 5


def test_duplicates_of_a_call_in_flight_wait_for_it_and_replay_or_are_told_to_wait(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    """F33, F18."""
    impatient = policy(tmp_path, namespace, "[defaults]\nwait_seconds = 0.0\n")

    async def main() -> None:
        patient = gateway(database_url, upstream(books.path), "--policy", policy(tmp_path, namespace))
        other = gateway(database_url, upstream(books.path), "--policy", impatient)
        async with Client(patient) as one, Client(other) as two:
            holder = asyncio.create_task(one.call_tool("slow", {"x": "1"}))
            await auntil(lambda: books.count("slow"))
            waiting = asyncio.create_task(one.call_tool("slow", {"x": "1"}))
            told = refusal(await two.call_tool("slow", {"x": "1"}))
            assert (told["code"], told["retryable"]) == ("intent_in_flight", True)
            assert "Wait and call again" in told["advice"]
            (tmp_path / "go").touch()
            done = await holder
            for replay in (await waiting, await two.call_tool("slow", {"x": "1"})):
                assert replay.structured_content == done.structured_content
                assert replay.meta is not None
                assert replay.meta[REPLAY]["attempt"] == 1

    run(main())
    assert books.count("slow") == 1


def test_the_same_call_of_two_tenants_on_one_gateway_is_two_effects(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    """F06."""
    rules = policy(tmp_path, namespace + "-{header.x-tenant}", NAMED)

    async def call(url: str, tenant: str | None, what: str = "pay:1") -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", **({"x-tenant": tenant} if tenant else {})}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.call_tool("charge", {"what": what})

    async def main(url: str) -> None:
        a, b, again = await call(url, "a"), await call(url, "b"), await call(url, "a")
        assert a.structured_content != b.structured_content
        assert a.structured_content == again.structured_content
        assert REPLAY not in (b.meta or {})
        assert refusal(await call(url, None))["code"] == "invalid_request"

    with served(database_url, books, rules) as (url, _):
        run(main(url))
    assert books.count("charge") == 2


def test_a_gateway_that_is_killed_after_the_effect_leaves_it_fenced_until_an_operator_says_what_happened(
    database_url: str, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness
) -> None:
    """F10."""
    rules = policy(tmp_path, namespace, NAMED)

    async def killed(url: str, process: Any) -> None:
        with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPError)):
            async with over_http(url) as client:
                call = asyncio.create_task(client.call_tool("slow", {"what": "pay"}))
                await auntil(lambda: books.count("slow"))
                process.kill()
                await call

    async def after() -> None:
        async with Client(gateway(database_url, upstream(books.path), "--policy", rules)) as client:
            told = refusal(await client.call_tool("slow", {"what": "pay"}))
            assert (told["code"], told["retryable"]) == ("intent_failed", False)
            assert "ask an operator" in told["advice"]
            with Fence(engine, namespace=namespace) as fence:
                facts = {"attempt": 1, "basis": "holder_dead", "evidence": "not in the books", "operator": "ann"}
                fence.clear("pay", **facts)
            (tmp_path / "go").touch()
            assert not (await client.call_tool("slow", {"what": "pay"})).is_error

    with served(database_url, books, rules, fresh=True) as (url, process):
        run(killed(url, process))
    expire_lease(engine, namespace, "pay")
    run(after())
    assert books.count("slow") == 2


@pytest.mark.parametrize(
    "cuts", [(Cut.BEFORE_COMMIT,), (Cut.AFTER_COMMIT,), (None, Cut.BEFORE_COMMIT), (None, Cut.AFTER_COMMIT)]
)
def test_a_connection_to_the_database_that_dies_around_a_commit_doubles_nothing(
    proxy: Proxy, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness, cuts: tuple[Cut | None, ...]
) -> None:
    """F16: the admission's commit, or the result's."""
    rules = policy(tmp_path, namespace, NAMED)

    async def main() -> None:
        async with Client(gateway(proxy.url, upstream(books.path), "--policy", rules)) as client:
            proxy.cut(*cuts)
            fresh = await client.call_tool("charge", {"what": "pay"})
            assert not fresh.is_error
            assert not proxy.pending
            assert (await client.call_tool("charge", {"what": "pay"})).structured_content == fresh.structured_content

    run(main())
    assert books.count("charge") == 1
    query = "SELECT attempt, state FROM effectfence.effects WHERE namespace = :namespace"
    assert all_of(engine, query, namespace=namespace) == [(1, "committed")]


def test_nothing_is_called_while_the_database_cannot_be_reached(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    async def main(proxy: Proxy, stop: Any) -> None:
        start = gateway(proxy.url, upstream(books.path), "--policy", policy(tmp_path, namespace, NAMED))
        async with Client(start) as client:
            # A tenant that was never called for has no connection yet: one that breaks is waited for, for a while.
            stop()
            told = refusal(await client.call_tool("charge", {"what": "after"}))
            assert (told["code"], told["retryable"]) == ("database_unavailable", True)

    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy(database_url))
        run(main(proxy, stack.close))
    assert books.count() == 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_upstream_on_http_that_dies_leaves_an_unknown_outcome_and_what_was_never_sent_is_not(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, mode: str
) -> None:
    passing = policy(tmp_path, namespace, '[[tool]]\nmatch = "*"\naction = "pass"\n')
    rules = policy(tmp_path, namespace, NAMED)
    secret = {"EFFECTFENCE_UPSTREAM_AUTHORIZATION": f"Bearer {TOKEN}"}

    async def main(url: str, process: Any) -> None:
        start = parameters("gateway", "--database-url", database_url, "--policy", rules, "--url", url, env=secret)
        async with Client(start, mode=mode) as client:
            call = asyncio.create_task(client.call_tool("slow", {"what": "pay"}))
            await auntil(lambda: books.count("slow"))
            process.kill()
            assert refusal(await call)["code"] == "intent_failed"
            assert refusal(await client.call_tool("slow", {"what": "pay"}))["code"] in {
                "intent_failed",
                "upstream_unavailable",
            }
            told = await client.call_tool("charge", {"what": "never sent"})
            assert told.is_error

    with served(database_url, books, passing, fresh=True) as (url, process):
        run(main(url, process))
    assert books.count("charge") == 0


@pytest.mark.parametrize("old", [True, False])
def test_an_upstream_on_http_that_was_started_anew_is_met_again_and_nothing_is_left_unknown(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, old: bool
) -> None:
    passing = policy(tmp_path, namespace, '[[tool]]\nmatch = "*"\naction = "pass"\n')
    rules = policy(tmp_path, namespace, NAMED)
    secret = {"EFFECTFENCE_UPSTREAM_AUTHORIZATION": f"Bearer {TOKEN}"}
    modern = ("gateway", "--database-url", database_url, "--policy", passing, "--", *upstream(books.path))
    inner = ("tests.support.old_server", str(books.path)) if old else modern

    async def main(client: Client, what: str) -> None:
        for _ in range(3):
            found = await client.call_tool("charge", {"what": what, "order_id": what})
            if not found.is_error:
                return
            assert refusal(found)["code"] == "upstream_unavailable"
        raise AssertionError("it was not met again")

    async def both() -> None:
        async with contextlib.AsyncExitStack() as stack:
            with serving(*inner) as (url, _):
                start = parameters(
                    "gateway", "--database-url", database_url, "--policy", rules, "--url", url, env=secret
                )
                client = await stack.enter_async_context(Client(start))
                await main(client, "before")
            with serving(*inner, port=int(url.rpartition(":")[2].partition("/")[0])):
                await main(client, "after")

    run(both())
    assert len(books.path.read_text().splitlines()) == 2


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_times_out_or_goes_away_finds_the_result_when_it_asks_again(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, mode: str
) -> None:
    rules = policy(tmp_path, namespace, NAMED)

    async def main(url: str) -> None:
        async with over_http(url, mode=mode) as client:
            with pytest.raises(MCPError):
                await client.call_tool("slow", {"what": "timed out"}, read_timeout_seconds=0.2)
        leaving = asyncio.create_task(_leave(url, mode))
        await auntil(lambda: books.count("slow") == 2)
        leaving.cancel()
        await asyncio.wait({leaving})
        (tmp_path / "go").touch()
        async with over_http(url, mode=mode) as client:
            for what in ("timed out", "left"):
                found = await client.call_tool("slow", {"what": what})
                assert not found.is_error
                assert found.meta is not None
                assert found.meta[REPLAY]["replayed"] is True

    with served(database_url, books, rules) as (url, _):
        run(main(url))
    assert books.count("slow") == 2


async def _leave(url: str, mode: str) -> None:
    async with over_http(url, mode=mode) as client:
        await client.call_tool("slow", {"what": "left"})


def test_a_gateway_that_is_told_to_end_sees_through_what_is_in_flight_and_takes_its_upstream_along(
    database_url: str, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness
) -> None:
    start = gateway(database_url, upstream(books.path), "--policy", policy(tmp_path, namespace, NAMED))
    call = {"name": "slow", "arguments": {"what": "pay"}}
    process = spawned(start)
    assert process.stdin
    try:
        for line in (asked(1, "initialize", HELLO), asked(2, "tools/call", call)):
            process.stdin.write(line + "\n")
            process.stdin.flush()
        until(lambda: books.count("slow"))
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    with Fence(engine, namespace=namespace) as fence:
        assert fence.status("pay").state == "committed"
    until(lambda: not Path("/proc", str(books.lines()[0]["pid"])).exists())


def test_a_client_on_stdio_that_leaves_loses_nothing_when_its_gateway_may_finish(
    database_url: str, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness
) -> None:
    rules = policy(tmp_path, namespace, NAMED)

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), "--policy", rules)) as client:
            call = asyncio.create_task(client.call_tool("slow", {"what": "left"}))
            await auntil(lambda: books.count("slow"))
            (tmp_path / "go").touch()
            call.cancel()
            await asyncio.wait({call})

    run(main())
    with Fence(engine, namespace=namespace) as fence:
        assert fence.status("left").state == "committed"
    assert books.count("slow") == 1
