"""What is served over a pipe answers lines that are no messages, and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters

from tests.support import warm
from tests.support.faces import ROOT, gateway, mcp
from tests.support.wire import answers

PING = '{"jsonrpc":"2.0","id":"ping","method":"ping"}'
CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"charge","arguments":{"order_id":%s}}}'


@pytest.fixture
def charges(tmp_path: Path) -> StdioServerParameters:
    command, *args = warm.python("effectfence_pg.gateway.charges", str(tmp_path / "books"))
    return StdioServerParameters(command=command, args=args, cwd=ROOT)


NO_MESSAGES = {
    "no JSON": ("charge order 7", None, -32700),
    "half a message": (CALL[:40], None, -32700),
    "a huge number": (CALL % ("9" * 5000), None, -32700),
    "half a surrogate pair": (CALL % '"\\ud800"', 7, -32700),
    "a batch": (f"[{PING}]", None, -32600),
    "no object": ("7", None, -32600),
    "no method": ('{"jsonrpc":"2.0","id":7}', 7, -32600),
    "no method without an id": ('{"jsonrpc":"2.0","method":5}', None, -32600),
    "params that are none": ('{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}', "a", -32600),
    "another version": ('{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, -32600),
}


@pytest.mark.parametrize(("line", "id_", "code"), NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_a_line_that_is_no_message_is_answered_by_its_id_as_far_as_that_can_be_told(
    charges: StdioServerParameters, line: str, id_: Any, code: int
) -> None:
    (told,) = answers(charges, line)
    assert (told["jsonrpc"], told["id"], told["error"]["code"]) == ("2.0", id_, code)


UNANSWERED = ["", "  ", '{"jsonrpc":"2.0","method":"x","params":[1]}', '{"jsonrpc":"2.0","id":7,"result":5}']


@pytest.mark.parametrize("line", UNANSWERED)
def test_what_has_no_answer_gets_none(charges: StdioServerParameters, line: str) -> None:
    assert answers(charges, line) == []


def test_the_gateway_and_the_tools_of_the_fence_answer_them_too(
    database_url: str, namespace: str, charges: StdioServerParameters
) -> None:
    for start in (gateway(database_url, [charges.command, *charges.args]), mcp(database_url, namespace)):
        (told,) = answers(start, "charge order 7")
        assert (told["id"], told["error"]["code"]) == (None, -32700)
