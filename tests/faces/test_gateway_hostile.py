"""Upstreams and clients that break the rules, in front of a gateway: nobody hangs, and nobody pays for another one's fault."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from effectfence_pg.async_fence import AsyncFence
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway import probe
from effectfence_pg.gateway.catalogue import Catalogue
from effectfence_pg.gateway.errors import UpstreamUnavailable
from effectfence_pg.gateway.policy import Policy, read_policy
from effectfence_pg.gateway.server import Gateway
from effectfence_pg.gateway.tenants import Tenants
from effectfence_pg.gateway.transports import command_transport
from effectfence_pg.running.naming import filled
from tests.support.faces import gateway, policy, refusal, run
from tests.support.witness import Witness


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


def test_fences_that_are_let_go_are_not_handed_to_calls_that_come_meanwhile(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = AsyncFence.aclose

    async def slowly(fence: AsyncFence) -> None:
        # As it does while results are still being recorded.
        await asyncio.sleep(0)
        await close(fence)

    monkeypatch.setattr(AsyncFence, "aclose", slowly)
    names = [f"tenant-{number}" for number in range(40)]

    async def use(tenants: Tenants, name: str) -> None:
        fence = await tenants.enter(name)
        await fence.current("nothing")
        tenants.leave(name)

    async def main() -> None:
        tenants = Tenants(database_url)
        for name in names:
            await tenants.enter(name)
        for name in names:
            tenants.leave(name)
        await asyncio.gather(*(use(tenants, name) for name in names[:9]))
        assert len(tenants) <= 32
        await tenants.aclose()

    run(main())


def test_a_request_without_a_session_never_gets_the_reads_of_another_one() -> None:
    gateway = Gateway(Policy(), Catalogue(), None, stdio=False)  # pyright: ignore[reportArgumentType]
    requests = (SimpleNamespace(meta={}, request=None) for _ in range(100))
    # Each is gone before the next one is made, as those of a server are.
    assert len({gateway._session_of(request) for request in requests}) == 100  # pyright: ignore[reportPrivateUsage, reportArgumentType]


def answered(result: str) -> str:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}'


UNREADABLE = {
    "lone surrogate": answered('{"content":[{"type":"text","text":"\\ud800"}]}'),
    "result first": '{"result":{"content":[],"structuredContent":{"id":7,"x":"\\ud800"}},"jsonrpc":"2.0","id":ID}',
    "nest": answered('{"content":[],"structuredContent":{"x":' + "[" * 400 + "]" * 400 + "}}"),
    "huge integer": answered('{"content":[],"structuredContent":{"x":' + "9" * 5000 + "}}"),
    "no object": answered('"done"'),
    "no error": '{"jsonrpc":"2.0","id":ID,"error":"boom"}',
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
def test_an_answer_that_cannot_be_read_is_an_unknown_outcome_and_nobody_waits_for_ever(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, answer: str
) -> None:
    command = [sys.executable, "-m", "tests.support.lying", str(books.path)]
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))

    async def main() -> None:
        async with Client(start) as client:
            call: dict[str, Any] = {"name": "charge", "arguments": {"answer": answer}}
            with pytest.raises(MCPError, match="cannot be read"):
                await client.call_tool(**call)
            assert refusal(await client.call_tool(**call))["code"] == "intent_failed"
            assert not (await client.call_tool("charge", {"x": "another one"})).is_error

    run(main())
    assert books.count("charge") == 2


def test_a_probe_of_a_server_that_says_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "START_SECONDS", 0.1)
    with pytest.raises(UpstreamUnavailable, match="does not say what tools it has"):
        run(probe.probe(command_transport(["sleep", "60"]), "charge", {}, 2))


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}


def raw(start: StdioServerParameters, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of calls that no client library would send, one after the other."""
    process = subprocess.Popen(
        [start.command, *start.args],
        env=start.env,
        cwd=start.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    answers: list[dict[str, Any]] = []
    try:
        for number, params in enumerate((HELLO, *calls)):
            method = "tools/call" if number else "initialize"
            print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}), file=process.stdin)
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        process.communicate(timeout=20)
    return [answer["result"] for answer in answers[1:]]


def test_a_call_that_cannot_be_sent_on_is_refused_by_its_field_and_leaves_its_action_alone(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = [sys.executable, "-m", "tests.support.lying", str(books.path)]
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))
    metas: tuple[Any, ...] = ("x", [1], 5)
    wrong = [{"name": "charge", "_meta": meta} for meta in metas]
    *refusals, done = raw(start, *wrong, {"name": ["charge"]}, {}, {"name": "charge", "_meta": None})
    fields = [answer["structuredContent"]["facts"]["field"] for answer in refusals]
    assert fields == ["_meta"] * 3 + ["name"] * 2
    assert not done.get("isError")
    assert books.count() == 1


def test_an_answer_with_a_place_for_marks_that_is_none_is_replayed_all_the_same(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = [sys.executable, "-m", "tests.support.lying", str(books.path)]
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))
    call = {
        "name": "charge",
        "arguments": {"answer": answered('{"content":[],"structuredContent":{"n":1},"_meta":[1]}')},
    }
    fresh, replay = raw(start, call, call)
    assert (fresh["structuredContent"], replay["structuredContent"]) == ({"n": 1}, {"n": 1})
    assert replay["_meta"]["effectfence/replay"]["replayed"] is True
    assert books.count() == 1


def test_a_listing_that_breaks_the_rules_does_not_cost_its_other_tools(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    tools = [{"name": "charge", "annotations": "read-only"}, "x", None, {"name": 7}, {"annotations": []}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    command = [sys.executable, "-m", "tests.support.lying", str(books.path)]
    call = {"name": "charge"}
    fresh, replay = raw(gateway(database_url, command, "--policy", policy(tmp_path, namespace)), call, call)
    assert not fresh.get("isError")
    assert replay["_meta"]["effectfence/replay"]["replayed"] is True
    assert books.count() == 1


def test_two_tenants_are_never_spelled_as_one(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('namespace = "{meta.org}-{meta.user}"')
    with pytest.raises(InvalidRequest, match="would be one tenant"):
        read_policy(file)


def test_a_letter_of_a_text_names_no_action() -> None:
    assert filled("intent", "refund:{order[0]}", {"order": ["A17"]}) == "refund:A17"
    with pytest.raises(InvalidRequest, match="no argument"):
        filled("intent", "refund:{order[0]}", {"order": "A17"})
