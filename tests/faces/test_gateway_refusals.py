"""Calls that the upstream could not take: refused by a gateway with nothing admitted and nothing sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from mcp import Client

from tests.support import warm
from tests.support.faces import gateway, policy, refusal, run
from tests.support.rows import one
from tests.support.wire import calling
from tests.support.witness import Witness

CHARGE = {
    "name": "charge",
    "inputSchema": {
        "type": "object",
        "properties": {"order": {"type": "string"}, "cents": {"type": "integer", "default": 4900}},
        "required": ["order"],
    },
}
OFF = "[defaults]\ncheck_calls = false\n"


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


def behind(url: str, books: Witness, rules: str) -> Any:
    return gateway(url, warm.python("tests.support.lying", str(books.path)), "--policy", rules)


def lists(folder: Path, *tools: Any) -> None:
    (folder / "tools.json").write_text(json.dumps(tools))


def admitted(engine: sa.Engine, namespace: str) -> int:
    return int(one(engine, "SELECT count(*) FROM effectfence.intents WHERE namespace = :n", n=namespace))


def test_what_the_upstream_could_not_take_is_refused_and_the_corrected_call_runs(
    database_url: str, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness
) -> None:
    lists(tmp_path, CHARGE)
    rules = policy(tmp_path, namespace, '[[tool]]\nmatch = "charge"\nintent = "charge:{order}"\n')

    async def main() -> None:
        async with Client(behind(database_url, books, rules)) as client:
            told = refusal(await client.call_tool("charge", {"order": "1", "cents": "4900"}))
            assert (told["code"], told["facts"]["tool"], told["facts"]["field"]) == (
                "invalid_arguments",
                "charge",
                "arguments.cents",
            )
            told = refusal(await client.call_tool("chrage", {"order": "1"}))
            assert (told["code"], told["facts"]["tool"]) == ("unknown_tool", "chrage")
            assert (books.count(), admitted(engine, namespace)) == (0, 0)
            assert not (await client.call_tool("charge", {"order": "1", "cents": 4900})).is_error

    run(main())
    assert (books.count(), admitted(engine, namespace)) == (1, 1)


def test_a_tool_that_was_added_since_the_last_listing_is_called(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    lists(tmp_path)

    async def main() -> None:
        async with Client(behind(database_url, books, policy(tmp_path, namespace))) as client:
            assert refusal(await client.call_tool("charge", {"order": "1"}))["code"] == "unknown_tool"
            lists(tmp_path, CHARGE)
            assert not (await client.call_tool("charge", {"order": "1"})).is_error
            lists(tmp_path, {**CHARGE, "inputSchema": {"type": "object", "required": ["shop"]}})
            assert refusal(await client.call_tool("refund", {}))["code"] == "unknown_tool"
            assert refusal(await client.call_tool("charge", {"order": "2"}))["facts"]["field"] == "arguments.shop"

    run(main())
    assert books.count() == 1


@pytest.mark.parametrize(
    ("listed", "rule"),
    [({"charge": {}}, ""), ("none", ""), ([], OFF), ([], '[[tool]]\nmatch = "*"\naction = "observe"\n')],
    ids=["no list", "a text", "unchecked", "a read"],
)
def test_a_call_is_passed_on_when_there_is_no_listing_or_the_policy_says_so(
    database_url: str, namespace: str, tmp_path: Path, books: Witness, listed: Any, rule: str
) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(listed))
    with calling(behind(database_url, books, policy(tmp_path, namespace, rule))) as call:
        assert "isError" not in call({"name": "charge", "arguments": {"order": 7}})
    assert books.count() == 1


def test_an_argument_left_out_identifies_a_call_by_its_default_and_is_not_sent(
    database_url: str, engine: sa.Engine, namespace: str, tmp_path: Path, books: Witness
) -> None:
    lists(tmp_path, CHARGE)
    named = 'intent = "charge:{order}:{cents}"\nidentity = ["order", "cents"]\n'
    rules = policy(tmp_path, namespace, f'[[tool]]\nmatch = "charge"\n{named}')

    async def main() -> None:
        async with Client(behind(database_url, books, rules)) as client:
            for arguments in ({"order": "1"}, {"order": "1", "cents": 4900}, {"order": "1"}):
                assert not (await client.call_tool("charge", arguments)).is_error

    run(main())
    assert [line["arguments"] for line in books.lines()] == [{"order": "1"}]
    assert one(engine, "SELECT intent FROM effectfence.intents WHERE namespace = :n", n=namespace) == "charge:1:4900"


def test_without_a_default_the_refusal_names_the_argument_that_the_policy_needs(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    lists(tmp_path, {"name": "charge", "inputSchema": {"type": "object"}})
    rules = policy(tmp_path, namespace, '[[tool]]\nmatch = "charge"\nidentity = ["cents"]\n')

    async def main() -> None:
        async with Client(behind(database_url, books, rules)) as client:
            told = refusal(await client.call_tool("charge", {"order": "1"}))
            assert (told["code"], told["facts"]["field"]) == ("invalid_arguments", "arguments.cents")
            assert told["facts"]["reason"] == "is needed here: the policy identifies this call by it"

    run(main())
    assert books.count() == 0
