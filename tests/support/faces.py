"""The commands that speak MCP, as other processes, and the official client in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.support import warm

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-tests-only"
LIMIT_SECONDS = 60


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it, with a limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await work

    return asyncio.run(limited())


def parameters(*arguments: str, env: Mapping[str, str] | None = None) -> StdioServerParameters:
    """One of our commands, for the official client to start."""
    first, *rest = warm.python("effectfence_pg", *arguments)
    return StdioServerParameters(command=first, args=rest, env={**os.environ, **(env or {})}, cwd=ROOT)


def command(*arguments: str, **env: str) -> tuple[int, str, str]:
    """One of our commands: exit status, stdout, stderr."""
    start = warm.python("effectfence_pg", *arguments)
    done = subprocess.run(start, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


def mcp(url: str, namespace: str, *more: str) -> StdioServerParameters:
    """The server of the fence's own tools."""
    return parameters("mcp", "--database-url", url, "--namespace", namespace, *more)


@contextlib.contextmanager
def serving(
    *arguments: str, env: Mapping[str, str] | None = None, port: int = 0, fresh: bool = False
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """One of our commands over HTTP, on a free port if none is given; where it listens.

    A first argument with a dot is a module of the tests instead. `fresh`: a Python of its own, whose end is the end of all.
    """
    first, *rest = arguments
    start = [first] if "." in first else ["effectfence_pg", first]
    process = subprocess.Popen(
        [
            *([sys.executable, "-m", *start] if fresh else warm.python(*start)),
            "--http",
            f"127.0.0.1:{port}",
            *rest,
        ],
        env={**os.environ, "EFFECTFENCE_MCP_TOKEN": TOKEN, **(env or {})},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    assert process.stdout
    try:
        said = ""
        for line in process.stderr:
            said += line
            if found := re.match(r"listening on (\S+)", line):
                yield found[1], process
                break
        else:
            raise AssertionError(said)
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=20)
        assert not out, "stdout belongs to nobody over HTTP"


@contextlib.asynccontextmanager
async def over_http(url: str, token: str = TOKEN, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """The official client with a bearer token."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client,
    ):
        yield client


def said(result: CallToolResult) -> dict[str, Any]:
    """The one JSON object of an answer; the same as its structured content."""
    assert len(result.content) == 1
    text = json.loads(result.content[0].text)  # pyright: ignore[reportAttributeAccessIssue]
    assert text == result.structured_content
    return text


def refusal(result: CallToolResult) -> dict[str, Any]:
    """Code, advice and facts of a refusal."""
    assert result.is_error
    assert isinstance(result.structured_content, dict)
    told = result.structured_content
    text = result.content[0].text  # pyright: ignore[reportAttributeAccessIssue]
    assert told["code"] in text
    assert told["advice"] in text
    return told


UPSTREAM = "tests.support.upstream"


def upstream(books: Path, *more: str) -> list[str]:
    """The command of the server that is written by hand."""
    return warm.python(UPSTREAM, str(books), *more)


def gateway(url: str, command: list[str], *options: str, env: Mapping[str, str] | None = None) -> StdioServerParameters:
    """A gateway in front of a command, for the official client to start."""
    return parameters("gateway", "--database-url", url, *options, "--", *command, env=env)


def policy(folder: Path, namespace: str, text: str = "", **settings: Any) -> str:
    """A policy file with a tenant of the test's own; `text` is what follows, in TOML."""
    file = folder / f"policy-{len(list(folder.glob('policy-*')))}.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"namespace": namespace, **settings}.items()]
    file.write_text("\n".join([*lines, text]))
    return str(file)
