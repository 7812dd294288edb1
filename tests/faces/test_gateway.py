"""A gateway in front of a server: everything mirrored, every effect fenced, nothing changed on the way."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError

from tests.support.faces import gateway, over_http, policy, refusal, run, serving, upstream
from tests.support.until import auntil
from tests.support.upstream import MEDIA
from tests.support.witness import Witness

REPLAY = "effectfence/replay"
ERAS = [("legacy", ()), ("legacy", ("--modern",)), ("auto", ()), ("auto", ("--modern",))]


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


@pytest.mark.parametrize(("mode", "more"), ERAS)
def test_tools_resources_prompts_and_completions_are_those_of_the_upstream(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, mode: str, more: tuple[str, ...]
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path, *more), *options), mode=mode) as client:
            assert client.server_info is not None
            assert (client.server_info.name, client.instructions) == ("by-hand", "Be careful.")
            tools = (await client.list_tools()).tools
            assert "read" in {tool.name for tool in tools}
            assert [r.uri for r in (await client.list_resources()).resources] == ["file:///a"]
            assert [t.name for t in (await client.list_resource_templates()).resource_templates] == ["t"]
            assert (await client.read_resource("file:///a")).contents[0].text == "content of a"
            assert [p.name for p in (await client.list_prompts()).prompts] == ["p"]
            assert (await client.get_prompt("p")).messages[0].content.text == "do it"
            found = await client.complete(
                types.PromptReference(type="ref/prompt", name="p"), {"name": "x", "value": "a"}
            )
            assert found.completion.values == ["abc"]
            first = await client.call_tool("charge", {"x": "1"})
            second = await client.call_tool("charge", {"x": "1"})
            assert first.structured_content == second.structured_content
            assert first.meta is None or REPLAY not in first.meta
            assert second.meta is not None
            assert second.meta[REPLAY]["replayed"] is True

    run(main())
    assert books.count("charge") == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_same_is_served_over_http_in_front_of_a_server_on_http(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, mode: str
) -> None:
    options = ("--database-url", database_url, "--policy", policy(tmp_path, namespace))
    command = ("--", *upstream(books.path))

    async def main(url: str) -> None:
        async with over_http(url, mode=mode) as client:
            assert len((await client.list_tools()).tools) == 14
            assert (await client.read_resource("file:///a")).contents[0].text == "content of a"
            answers = await asyncio.gather(*(client.call_tool("charge", {"x": mode}) for _ in range(6)))
            assert all(answer.structured_content == answers[0].structured_content for answer in answers)

    # A gateway on HTTP is an upstream on HTTP for another one.
    with serving("gateway", *options, *command) as (inner, _):
        secret = {"EFFECTFENCE_UPSTREAM_AUTHORIZATION": "Bearer a-token-of-the-tests-only"}
        passing = policy(tmp_path, namespace, '[[tool]]\nmatch = "*"\naction = "pass"\n')
        with serving("gateway", "--database-url", database_url, "--policy", passing, "--url", inner, env=secret) as (
            outer,
            _,
        ):
            run(main(outer))
    assert books.count("charge") == 1


def test_a_result_arrives_and_is_replayed_value_for_value(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), *options), mode="legacy") as client:
            for name in ("media", "fail", "big"):
                fresh, replay = [await client.call_tool(name, {"x": "1"}) for _ in range(2)]
                said, again = fresh.model_dump(), replay.model_dump()
                marks = again["meta"].pop(REPLAY)
                assert marks["replayed"] is True
                assert again["meta"] == (said["meta"] or {})
                assert {**again, "meta": None} == {**said, "meta": None}
            assert fresh.content[0].text == "\u00fc\U0001f600x" * 300_000  # pyright: ignore[reportAttributeAccessIssue]
            shown = await client.call_tool("media", {"x": "1"})
            assert shown.structured_content == MEDIA["structuredContent"]
            assert [block.type for block in shown.content] == ["text", "image", "resource", "resource_link"]

    run(main())
    assert {name: books.count(name) for name in ("media", "fail", "big")} == {"media": 1, "fail": 1, "big": 1}


def test_a_thousand_tools_are_listed_unchanged(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def listed(client: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [tool.model_dump() for tool in page.tools]
            if (cursor := page.next_cursor) is None:
                return found

    async def main() -> None:
        command = upstream(books.path, "--many", "1000")
        direct = gateway(database_url, command)
        direct.command, direct.args = command[0], command[1:]
        async with Client(direct, mode="legacy") as client, Client(gateway(database_url, command, *options)) as other:
            raw = await listed(client)
            assert len(raw) == 1014
            assert await listed(other) == raw

    run(main())


def test_an_upstream_that_dies_after_the_call_leaves_an_unknown_outcome_and_is_started_again_for_others(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), *options)) as client:
            for _ in range(2):
                told = refusal(await client.call_tool("die", {}))
                assert (told["code"], told["facts"]["state"]) == ("intent_failed", "failed")
                assert "operator" in told["advice"]
            assert not (await client.call_tool("charge", {})).is_error

    run(main())
    assert (books.count("die"), books.count("charge")) == (1, 1)


@pytest.mark.parametrize("more", [(), ("--modern",)])
def test_an_error_of_the_tool_follows_the_policy(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, more: tuple[str, ...]
) -> None:
    release = '[defaults]\non_tool_error = "release"\n'
    fence = policy(tmp_path, namespace)
    released = policy(tmp_path, namespace + "-r", release)

    async def calls(options: str) -> tuple[list[bool | None], list[str]]:
        async with Client(gateway(database_url, upstream(books.path, *more), "--policy", options)) as client:
            errors = [(await client.call_tool("fail", {})).is_error for _ in range(2)]
            rejections: list[str] = []
            for _ in range(2):
                try:
                    rejections.append(refusal(await client.call_tool("reject", {}))["code"])
                except MCPError as error:
                    rejections.append(str(error.code))
            return errors, rejections

    assert run(calls(fence)) == ([True, True], ["-32602", "intent_failed"])
    assert (books.count("fail"), books.count("reject")) == (1, 1)
    assert run(calls(released)) == ([True, True], ["-32602", "-32602"])
    assert (books.count("fail"), books.count("reject")) == (3, 3)


def test_an_answer_that_asks_for_input_is_no_outcome_and_its_continuation_is_the_same_action(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def yes(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert params.message == "Sure?"
        return types.ElicitResult(action="accept", content={})

    async def main() -> None:
        start = gateway(database_url, upstream(books.path, "--modern"), *options)
        async with Client(start, elicitation_callback=yes) as client:
            first = await client.call_tool("ask", {"x": "1"})
            second = await client.call_tool("ask", {"x": "1"})
            assert first.structured_content == second.structured_content
            assert second.meta is not None
            # The second was asked nothing: the action is done.
            assert second.meta[REPLAY]["attempt"] == 2

    run(main())
    asked, answered = books.lines()
    assert "effectfence/attempt" in asked["meta"]
    assert asked["meta"]["effectfence/idempotencyKey"] == answered["meta"]["effectfence/idempotencyKey"]


def test_a_client_that_cannot_answer_within_a_result_is_told_so(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        start = gateway(database_url, upstream(books.path, "--modern"), *options)
        async with Client(start, mode="legacy") as client:
            assert refusal(await client.call_tool("ask", {"x": "1"}))["code"] == "input_required"

    run(main())
    assert "elicitation" not in str(books.lines()[0]["meta"]["io.modelcontextprotocol/clientCapabilities"])


def test_the_upstream_gets_a_key_that_stays_the_same_and_the_clients_own_key_names_the_action(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    text = '[[tool]]\nmatch = "meta"\nidentity = ["x"]\n'
    options = ("--policy", policy(tmp_path, namespace, text))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), *options)) as client:
            key: Any = {"effectfence/key": "order 7", "vendor/x": 1}
            sent = await client.call_tool("meta", {"x": "1", "words": "a"}, meta=key)
            worded = await client.call_tool("meta", {"x": "1", "words": "b"}, meta=key)
            assert worded.structured_content == sent.structured_content
            assert isinstance(sent.structured_content, dict)
            seen = sent.structured_content["meta"]
            assert (seen["vendor/x"], seen["effectfence/seq"], seen["effectfence/attempt"]) == (1, 1, 1)
            assert len(seen["effectfence/idempotencyKey"]) == 64
            other = refusal(await client.call_tool("meta", {"x": "2", "words": "a"}, meta=key))
            assert other["code"] == "intent_mismatch"
            wrong: Any = {"effectfence/key": 7}
            assert refusal(await client.call_tool("meta", {"x": "1"}, meta=wrong))["code"] == "invalid_request"

    run(main())
    assert books.count("meta") == 1


def test_a_client_cannot_make_two_actions_of_what_the_policy_names(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    text = '[[tool]]\nmatch = "charge"\nintent = "charge:{order_id}"\nidentity = ["order_id"]\n'
    options = ("--policy", policy(tmp_path, namespace, text))

    async def main() -> None:
        async with Client(gateway(database_url, upstream(books.path), *options)) as client:
            metas: list[Any] = [{"effectfence/key": "a"}, {"idempotencyKey": "b"}, None]
            for meta in metas:
                assert not (await client.call_tool("charge", {"order_id": "1"}, meta=meta)).is_error

    run(main())
    assert books.count("charge") == 1


def test_a_read_is_passed_through_and_the_sessions_later_effect_rests_on_it(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    text = '[[tool]]\nmatch = "read"\ndomain = "order:{x}"\n[[tool]]\nmatch = "charge"\ndomain = "order:{x}"\n'
    text += 'intent = "charge:{x}:{n}"\n'
    options = ("--policy", policy(tmp_path, namespace, text))

    async def main() -> None:
        start = gateway(database_url, upstream(books.path), *options)
        async with Client(start) as reader, Client(start) as other:
            await reader.call_tool("read", {"x": "1"})
            await reader.call_tool("read", {"x": "1"})
            assert not (await other.call_tool("charge", {"x": "1", "n": 1})).is_error
            told = refusal(await reader.call_tool("charge", {"x": "1", "n": 2}))
            assert (told["code"], told["facts"]["entries"]) == (
                "read_set_stale",
                [{"domain": "order:1", "seq": 0, "live": 1}],
            )
            assert "Read the named domains again" in told["advice"]
            await reader.call_tool("read", {"x": "1"})
            for number in (2, 3):
                # A session knows its own effects.
                assert not (await reader.call_tool("charge", {"x": "1", "n": number})).is_error

    run(main())
    assert (books.count("read"), books.count("charge")) == (3, 3)


@pytest.mark.parametrize(("mode", "more"), ERAS)
def test_changes_of_lists_progress_and_hints_come_through(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, mode: str, more: tuple[str, ...]
) -> None:
    options = ("--policy", policy(tmp_path, namespace))
    changed: list[Any] = []
    progress: list[Any] = []

    async def heard(message: Any) -> None:
        changed.append(message)

    async def told(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, total, message))

    async def main() -> None:
        start = gateway(database_url, upstream(books.path, *more), *options)
        async with Client(start, mode=mode, message_handler=heard) as client:
            await client.call_tool("progress", {}, progress_callback=told)
            await auntil(lambda: progress == [(1, 2, "half")])
            if more:
                # Written by hand, this upstream has no stream that changes could be asked for.
                return
            async with AsyncExitStack() as stack:
                if mode == "auto":
                    events = await stack.enter_async_context(client.listen(tools_list_changed=True))
                    changed.append(asyncio.ensure_future(anext(aiter(events))))
                await client.call_tool("grow", {})
                await auntil(lambda: any(_says_changed(message) for message in changed))
                assert "grown-1" in {tool.name for tool in (await client.list_tools()).tools}

    run(main())


def _says_changed(heard: Any) -> bool:
    if isinstance(heard, asyncio.Future):
        return heard.done() and isinstance(heard.result(), ToolsListChanged)
    return isinstance(heard, types.ToolListChangedNotification)


def test_an_upstream_may_ask_the_one_client_of_a_gateway_on_stdio(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def ann(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert params.message == "Who?"
        return types.ElicitResult(action="accept", content={"who": "ann"})

    async def main() -> None:
        start = gateway(database_url, upstream(books.path), *options)
        async with Client(start, mode="legacy", elicitation_callback=ann) as client:
            found = await client.call_tool("elicit", {})
            assert found.structured_content == {"action": "accept", "content": {"who": "ann"}}

    run(main())


def test_an_upstream_that_cannot_be_started_admits_nothing(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    options = ("--policy", policy(tmp_path, namespace))

    async def main() -> None:
        start = gateway(database_url, ["false"], *options)
        with pytest.raises((MCPError, ExceptionGroup)) as refused:
            async with Client(start, mode="legacy"):
                pass
        assert "upstream server cannot be reached" in repr(refused.value) + repr(
            getattr(refused.value, "exceptions", "")
        )

    run(main())
