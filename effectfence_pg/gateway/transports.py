"""The ways to an upstream: a child process, or streamable HTTP."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from effectfence_pg.gateway.unreadable import Answered
from effectfence_pg.serving import TOKEN_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

AUTHORIZATION_VARIABLE: Final = "EFFECTFENCE_UPSTREAM_AUTHORIZATION"
KEPT_BACK: Final = frozenset({DATABASE_VARIABLE, TOKEN_VARIABLE, AUTHORIZATION_VARIABLE})
"""Variables that the upstream does not get: with them it could write what the fence knows."""
CONNECT_SECONDS: Final = 30.0
SESSION_HEADER: Final = "mcp-session-id"


@dataclass(frozen=True)
class Way:
    """How to get to an upstream.

    Attributes:
        connect: Opens the streams of a new connection.
        refused: The ids of requests that the server refused to take, because it does not know our session any more.
        denied: The HTTP status with which it last denied us access.
    """

    connect: Callable[[], Any]
    refused: set[str] = field(default_factory=set[str])
    denied: deque[int] = field(default_factory=lambda: deque[int](maxlen=1))

    def told(self, error: BaseException) -> str:
        """Why the upstream cannot be reached: the first plain error of a group, and what an operator can do about it."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if not self.denied:
            return said
        return f"{said}; HTTP status {self.denied[0]}: set {AUTHORIZATION_VARIABLE} to what it wants as Authorization header"


def command_transport(command: list[str]) -> Way:
    """A child process, with our environment but for what is the fence's own."""
    env = {name: value for name, value in os.environ.items() if name not in KEPT_BACK}
    start = StdioServerParameters(command=command[0], args=command[1:], env=env)
    # The SDK offers to stop reading at the first byte that is no UTF-8, with nobody told, or to change what was answered. This
    # keeps such bytes apart: a line of a log with them is passed over, an answer is one that cannot be read.
    start = start.model_copy(update={"encoding_error_handler": "surrogateescape"})

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Any]:
        async with stdio_client(start) as (reader, writer):
            yield Answered(reader), writer

    return Way(connect)


def url_transport(url: str) -> Way:
    """A server on streamable HTTP. A tool may be silent for as long as it runs."""
    headers = {"Authorization": value} if (value := os.environ.get(AUTHORIZATION_VARIABLE)) else None
    refused: set[str] = set()
    denied: deque[int] = deque(maxlen=1)

    async def answered(response: httpx2.Response) -> None:
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            denied.append(response.status_code)
        # The protocol's word for "no such session", seen here because what the SDK makes of it may have other causes.
        if response.status_code == HTTPStatus.NOT_FOUND and SESSION_HEADER in response.request.headers:
            with contextlib.suppress(ValueError, AttributeError, httpx2.RequestNotRead):
                refused.add(str(json.loads(response.request.content).get("id")))

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Any]:
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        hooks = {"response": [answered]}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as http,
            streamable_http_client(url, http_client=http) as streams,
        ):
            yield streams

    return Way(connect, refused, denied)
