"""The fence as an MCP server: everything listed and called by the official client, over stdio and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.support import warm
from tests.support.faces import TOKEN, mcp, over_http, refusal, run, said, serving

AGENTS = {"fence_abort", "fence_commit", "fence_lineage", "fence_observe", "fence_prepare", "fence_promote"} | {
    "fence_renew",
    "fence_stats",
    "fence_status",
}
CHARGE = {"intent": "charge:1", "domain": "order:1", "tool": "charge", "agent": "a", "args": {"cents": 4900}}


def _untyped(schema: Any, path: str = "") -> list[str]:
    """Properties, items and values of maps that do not say what they are."""
    found: list[str] = []
    if isinstance(schema, dict):
        for key in ("properties", "patternProperties"):
            for name, part in schema.get(key, {}).items():
                found += [] if "type" in part else [f"{path}.{name}"]
                found += _untyped(part, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(part := schema.get(key), dict):
                found += ([] if "type" in part else [f"{path}[{key}]"]) + _untyped(part, f"{path}[{key}]")
    return found


async def _everything(client: Client, operator: bool) -> None:
    listed = (await client.list_tools()).tools
    assert {tool.name for tool in listed} == AGENTS | ({"fence_reconcile"} if operator else set())
    for tool in listed:
        assert not _untyped(tool.input_schema) + _untyped(tool.output_schema), tool.name
        assert "$ref" not in json.dumps([tool.input_schema, tool.output_schema])

    async def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        # The client checks what comes back against the schema of the tool.
        return said(await client.call_tool(tool, arguments))

    entries = (await call("fence_observe", domains=["order:1", "stock"]))["entries"]
    assert entries == [{"domain": "order:1", "seq": 0}, {"domain": "stock", "seq": 0}]
    fresh = await call("fence_prepare", **CHARGE, read_set=[{"domain": "stock", "seq": 0}], parent=None, known_clock={})
    assert fresh["status"] == "fresh"
    prepared = fresh["prepared"]
    assert (prepared["seq"], prepared["vector_clock"], prepared["parent"]) == (1, {"a": 1}, None)
    renewed = await call("fence_renew", prepared=prepared)
    assert renewed["prepared"]["lease_expires_at"] >= prepared["lease_expires_at"]
    assert (await call("fence_status", intent="charge:1"))["state"] == "in_flight"
    done = await call("fence_commit", prepared=prepared, result={"id": "ch_1", "fee": None})
    assert done["status"] == "committed"
    assert list(done["cert"]) == [
        *("intent", "parent", "domain", "seq", "tool", "args", "result", "vector_clock", "read_set", "agent", "hash")
    ]
    again = await call("fence_prepare", **CHARGE)
    assert (again["status"], again["cert"]) == ("already_done", done["cert"])
    child = (await call("fence_prepare", **{**CHARGE, "intent": "mail:1"}, parent=done["cert"]["hash"]))["prepared"]
    second = await call("fence_commit", prepared=child, result=None)
    graph = await call("fence_lineage", name="mail:1")
    assert [node["intent"] for node in graph["nodes"]] == ["mail:1", "charge:1"]
    assert graph["edges"] == [{"observer": ["mail:1", 1], "observed": ["charge:1", 1], "via": "parent"}]
    assert len((await call("fence_lineage", name="mail:1", depth=0))["nodes"]) == 1
    upward = await call("fence_lineage", name=done["cert"]["hash"], dependents=True)
    assert [node["certificate"] for node in upward["nodes"]] == [done["cert"]["hash"], second["cert"]["hash"]]
    held = (await call("fence_prepare", **{**CHARGE, "intent": "plan"}, branch="b"))["prepared"]
    assert (await call("fence_commit", prepared=held, result=1, closure="hold"))["status"] == "held"
    assert await call("fence_promote", branch="b") == {"status": "committed", "branch": "b", "effects": 1}
    given_up = (await call("fence_prepare", **{**CHARGE, "intent": "lost"}))["prepared"]
    aborted = await call("fence_abort", prepared=given_up, reason="the provider hung up")
    assert (aborted["status"], aborted["intent"], aborted["state"]) == ("aborted", "lost", "failed")
    stats = await call("fence_stats")
    assert (stats["admitted"], stats["replayed"], stats["prevented"]) == (4, 1, 1)
    assert stats["refused"] == {"stale_read_set": 0, "domain_race": 0, "in_flight": 0, "prior_failure": 0}
    if operator:
        verdict = {"intent": "lost", "attempt": 1, "outcome": "did_not_happen", "basis": "holder_dead"}
        cleared = await call("fence_reconcile", **verdict, evidence={"seen": False}, operator="ann")
        assert cleared["state"] == "released"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_lists_and_calls_every_tool_over_stdio(
    database_url: str, namespace: str, mode: str
) -> None:
    async def main() -> None:
        async with Client(mcp(database_url, namespace, "--operator"), mode=mode) as client:
            await _everything(client, operator=True)

    run(main())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_lists_and_calls_every_tool_over_http(database_url: str, namespace: str, mode: str) -> None:
    async def main(url: str) -> None:
        async with over_http(url, mode=mode) as client:
            await _everything(client, operator=False)

    with serving("mcp", "--database-url", database_url, "--namespace", namespace) as (url, _):
        run(main(url))
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"}):
            assert httpx2.post(url, json={}, headers=headers).status_code == 401


def test_two_servers_on_one_database_are_one_fence(database_url: str, namespace: str) -> None:
    async def main() -> None:
        one, two = mcp(database_url, namespace), mcp(database_url, namespace)
        async with Client(one) as here, Client(two) as there:
            prepared = said(await here.call_tool("fence_prepare", CHARGE))["prepared"]
            told = refusal(await there.call_tool("fence_prepare", CHARGE))
            assert (told["code"], told["facts"]["holder"]) == ("intent_in_flight", "a")
            done = said(await there.call_tool("fence_commit", {"prepared": prepared, "result": {"id": 1}}))
            assert said(await here.call_tool("fence_prepare", CHARGE))["cert"] == done["cert"]

    run(main())


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("fence_prepare", {}, "intent"),
    ("fence_prepare", {**CHARGE, "intent": "x" * 1_000_000}, "intent"),
    ("fence_prepare", {**CHARGE, "intent": "a\0b"}, "intent"),
    ("fence_prepare", {**CHARGE, "intent": 7}, "intent"),
    ("fence_prepare", {**CHARGE, "read_set": [{"domain": "d", "seq": -1}]}, "read_set[0].seq"),
    ("fence_prepare", {**CHARGE, "parent": "not hex"}, "parent"),
    ("fence_prepare", {**CHARGE, "surprise": 1}, "surprise"),
    ("fence_prepare", {**CHARGE, "wait_seconds": "soon"}, "wait_seconds"),
    ("fence_commit", {"prepared": {}, "result": 1}, "prepared.intent"),
    ("fence_commit", {"prepared": "a ticket", "result": 1}, "prepared"),
    ("fence_abort", {"prepared": None, "reason": "r"}, "prepared"),
    ("fence_status", {"intent": ["a"]}, "intent"),
    ("fence_observe", {"domains": ["ok", ""]}, "domains[1]"),
    ("fence_lineage", {"name": "charge:1", "depth": -1}, "depth"),
    ("fence_promote", {}, "intent"),
]


def test_bad_arguments_are_refused_by_their_field_and_never_kill_the_server(database_url: str, namespace: str) -> None:
    async def main() -> None:
        async with Client(mcp(database_url, namespace)) as client:
            for name, arguments, field in BAD:
                told = refusal(await client.call_tool(name, arguments))
                assert told["code"] == "invalid_request", (name, told)
                assert told["facts"]["field"].startswith(field.partition("[")[0]), (name, told)
            unknown = refusal(await client.call_tool("fence_status", {"intent": "nobody"}))
            assert (unknown["code"], unknown["retryable"]) == ("unknown_intent", False)
            assert said(await client.call_tool("fence_prepare", CHARGE))["status"] == "fresh"

    run(main())


def test_noise_on_the_wire_does_not_end_the_server_and_stdout_carries_nothing_but_the_protocol(
    database_url: str, namespace: str
) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    lines = [
        "no json at all",
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fence_stats","arguments":"\\ud800"}}',
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": hello}),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": 5}}),
        json.dumps({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "fence_stats"}}),
        "[" * 5000,
        json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "fence_stats"}}),
    ]
    command = [sys.executable, "-m", "effectfence_pg", "mcp", "--database-url", database_url, "--namespace", namespace]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while 5 not in answers:
            answer = json.loads(process.stdout.readline())
            answers[answer.get("id")] = answer
    finally:
        out, _ = process.communicate(timeout=30)
    assert not out
    assert process.returncode == 0
    assert answers[4]["result"]["structuredContent"]["admitted"] == 0
    assert "error" in answers[3]


@pytest.mark.parametrize(
    ("arguments", "environment", "word"),
    [
        (["--http", "127.0.0.1"], {}, "HOST:PORT"),
        (["--http", "127.0.0.1:0"], {"EFFECTFENCE_MCP_TOKEN": ""}, "bearer token"),
        (["--http", "127.0.0.1:0"], {"EFFECTFENCE_MCP_TOKEN": ""}, "--token-file"),
        (["--http", "127.0.0.1:0"], {"EFFECTFENCE_MCP_TOKEN": "short"}, "16"),
        (["--http", "127.0.0.1:0"], {"EFFECTFENCE_MCP_TOKEN": "short"}, "--token-file"),
        (["-n", "shop", "--http", "127.0.0.1"], {}, "HOST:PORT"),
    ],
)
def test_http_is_not_served_without_a_token(
    database_url: str, arguments: list[str], environment: dict[str, str], word: str
) -> None:
    import os

    command = warm.python("effectfence_pg", "mcp", "--database-url", database_url, *arguments)
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr
