"""The ways to an upstream: a child process, or streamable HTTP."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from effectfence_pg.serving import TOKEN_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

AUTHORIZATION_VARIABLE: Final = "EFFECTFENCE_UPSTREAM_AUTHORIZATION"
KEPT_BACK: Final = frozenset({DATABASE_VARIABLE, TOKEN_VARIABLE, AUTHORIZATION_VARIABLE})
"""Variables that the upstream does not get: with them it could write what the fence knows."""
CONNECT_SECONDS: Final = 30.0


def command_transport(command: list[str]) -> Callable[[], Any]:
    """A child process, with our environment but for what is the fence's own."""
    env = {name: value for name, value in os.environ.items() if name not in KEPT_BACK}
    return lambda: stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=env))


def url_transport(url: str) -> Callable[[], Any]:
    """A server on streamable HTTP. A tool may be silent for as long as it runs."""
    headers = {"Authorization": value} if (value := os.environ.get(AUTHORIZATION_VARIABLE)) else None

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Any]:
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
            streamable_http_client(url, http_client=http) as streams,
        ):
            yield streams

    return connect
