"""Answers of an upstream that are hard to read, or none: what becomes of them, and of whoever waits for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.support import warm
from tests.support.faces import gateway, policy, refusal, run
from tests.support.wire import raw
from tests.support.witness import Witness


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


def answered(result: str) -> str:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}'


UNREADABLE = {
    "lone surrogate": answered('{"content":[{"type":"text","text":"\\ud800"}]}'),
    "result first": '{"result":{"content":[],"structuredContent":{"id":7,"x":"\\ud800"}},"jsonrpc":"2.0","id":ID}',
    "nest": answered('{"content":[],"structuredContent":{"x":' + "[" * 400 + "]" * 400 + "}}"),
    "huge integer": answered('{"content":[],"structuredContent":{"x":' + "9" * 5000 + "}}"),
    "no UTF-8": answered('{"content":[{"type":"text","text":"cafBYTE"}]}'),
    "no object": answered('"done"'),
    "no error": '{"jsonrpc":"2.0","id":ID,"error":"boom"}',
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
def test_an_answer_that_cannot_be_read_is_an_unknown_outcome_and_nobody_waits_for_ever(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, answer: str
) -> None:
    command = warm.python("tests.support.lying", str(books.path))
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


def test_lines_of_a_log_among_the_answers_are_passed_over(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = warm.python("tests.support.lying", str(books.path))
    lines = 'charging order 7\n\ncafBYTE\n{"level": "info", "id": 7, "result": "ok"}\n'
    call = {"name": "charge", "arguments": {"answer": lines + answered('{"content":[],"structuredContent":{"n":1}}')}}
    fresh, replay = raw(gateway(database_url, command, "--policy", policy(tmp_path, namespace)), call, call)
    assert fresh["structuredContent"] == replay["structuredContent"] == {"n": 1}
    assert books.count() == 1


def test_a_number_that_json_lacks_is_neither_recorded_nor_does_it_hide_that_the_tool_ran(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = warm.python("tests.support.lying", str(books.path))
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))
    for number in ("NaN", "-Infinity", "1e999"):
        answer = answered(f'{{"content":[],"structuredContent":{{"x":{number},"n":1}}}}')
        call = {"name": "charge", "arguments": {"answer": answer}}
        fresh, *replays = raw(start, call, call, call)
        assert fresh["structuredContent"] == {"x": None, "n": 1}
        assert {replay["structuredContent"]["code"] for replay in replays} == {"result_not_replayable"}
    assert books.count() == 3


def test_an_answer_with_a_place_for_marks_that_is_none_is_replayed_all_the_same(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = warm.python("tests.support.lying", str(books.path))
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))
    call = {
        "name": "charge",
        "arguments": {"answer": answered('{"content":[],"structuredContent":{"n":1},"_meta":[1]}')},
    }
    fresh, replay = raw(start, call, call)
    assert (fresh["structuredContent"], replay["structuredContent"]) == ({"n": 1}, {"n": 1})
    assert replay["_meta"]["effectfence/replay"]["replayed"] is True
    assert books.count() == 1
