"""One of our commands over a pipe, spoken to line by line: what no client library would send, and what it would not show."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mcp import StdioServerParameters

LIMIT_SECONDS = 60.0
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}


def spawned(start: StdioServerParameters) -> subprocess.Popen[str]:
    """A server with both ends of its wire in our hands."""
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
    return process


@contextlib.contextmanager
def spoken_to(start: StdioServerParameters) -> Iterator[tuple[Callable[[str], None], Callable[[], dict[str, Any]]]]:
    """Say a line; the next message that it says."""
    process = spawned(start)
    assert process.stdin
    assert process.stdout
    given, heard = process.stdin, process.stdout
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()

    def say(line: str) -> None:
        given.write(line + "\n")
        given.flush()

    def hear() -> dict[str, Any]:
        line = heard.readline()
        assert line, "it ended, or said nothing until the limit"
        return json.loads(line)

    try:
        yield say, hear
    finally:
        limit.cancel()
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def asked(id_: Any, method: str, params: Any) -> str:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


@contextlib.contextmanager
def calling(start: StdioServerParameters) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Call a tool; its result, with notifications before it left out."""
    with spoken_to(start) as (say, hear):

        def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
            say(asked("request", method, params))
            while "id" not in (answer := hear()):
                pass
            return answer["result"]

        request("initialize", HELLO)
        yield lambda params: request("tools/call", params)


def raw(start: StdioServerParameters, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of calls, one after the other."""
    with calling(start) as call:
        return [call(params) for params in calls]


def answers(start: StdioServerParameters, *lines: str) -> list[dict[str, Any]]:
    """All that is said to these lines."""
    said: list[dict[str, Any]] = []
    with spoken_to(start) as (say, hear):
        for line in (asked("hello", "initialize", HELLO), *lines, asked("ping", "ping", {})):
            say(line)
        while not said or said[-1].get("id") != "ping":
            said.append(hear())
    return [answer for answer in said if answer.get("id") not in {"hello", "ping"}]
