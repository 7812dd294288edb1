"""How a server of the Model Context Protocol is served, over stdio or streamable HTTP, and what its refusals look like.

Shared by the faces that speak MCP. Needs the extra ``mcp`` or ``gateway``.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio
import uvicorn
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError
from starlette.middleware.authentication import AuthenticationMiddleware

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.running.messages import tool_message

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from mcp.server.lowlevel.server import Server

    from effectfence_pg.errors import FenceError

TOKEN_VARIABLE: Final = "EFFECTFENCE_MCP_TOKEN"  # noqa: S105 (the name of the variable that holds it)
PATH: Final = "/mcp"
MIN_TOKEN_BYTES: Final = 16
MAX_PORT: Final = 65535
BACKLOG: Final = 512
CHANGES: Final = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


def refused(error: FenceError) -> dict[str, Any]:
    """A refusal as the result of a tool: text for a model, and code, facts and advice as structured content."""
    return {
        "content": [{"type": "text", "text": tool_message(error)}],
        "structuredContent": error.as_dict(),
        "isError": True,
    }


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; `[::1]:8000` for a host with colons.

    Raises:
        InvalidRequest: It is neither.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise InvalidRequest(field="http", reason=f"{text!r} is not of the form HOST:PORT")
    return host, int(port)


def bearer_token(file: Path | None) -> str:
    """The token that clients have to show: from a file, else from the environment. It never stands on a command line.

    Raises:
        InvalidRequest: There is none, or it is too short to be a secret.
    """
    field = TOKEN_VARIABLE if file is None else "token-file"
    instead = "; --token-file names a file with one" if file is None else ""
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(field=field, reason=f"cannot be read: {error}") from error
    if not token:
        raise InvalidRequest(field=field, reason=f"is empty: serving HTTP needs a bearer token{instead}")
    if len(token.encode()) < MIN_TOKEN_BYTES or not token.isascii() or " " in token:
        reason = f"is no token of at least {MIN_TOKEN_BYTES} ASCII characters{instead}"
        raise InvalidRequest(field=field, reason=reason)
    return token


class OneToken:
    """Accepts one bearer token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who shows this; None when it is another one."""
        if not hmac.compare_digest(token.encode(errors="replace"), self._token):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=[])


class Received:
    """The messages of a stream, each looked at before it goes on. Subclasses say what it goes on as."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def looked_at(self, item: Any) -> Any:
        """A message, or what the SDK makes of one that it cannot read; what it goes on as."""
        raise NotImplementedError

    @property
    def last_context(self) -> Any:
        """That of the last message, for the SDK."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """The next message."""
        return await self.looked_at(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.looked_at(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


class Heard(Received):
    """The messages of a client over a pipe. Those that cannot be read are answered here: the SDK lets their sender wait."""

    def __init__(self, reader: Any, writer: Any) -> None:
        super().__init__(reader)
        self._writer = writer

    async def looked_at(self, item: Any) -> Any:
        """The same, answered when it cannot be read."""
        if isinstance(item, ValidationError) and (answer := unreadable(item)) is not None:
            # A client that is gone is found out by whoever reads next.
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._writer.send(SessionMessage(answer))
        return item


def unreadable(error: ValidationError) -> JSONRPCError | None:
    """What to say to a line that is no message; nothing to an empty one, a notification or an answer.

    It has the line's id where that can be told: its sender waits for it.
    """
    parts = error.errors(include_url=False, include_context=False)
    code, told = INVALID_REQUEST, "Invalid Request"
    given: Any = next((part["input"] for part in parts if part["type"] in {"missing", "model_type"}), None)
    if parts[0]["type"] == "json_invalid":
        code, told, line = PARSE_ERROR, "Parse error", str(parts[0]["input"])
        if not line.strip():
            return None
        with contextlib.suppress(ValueError, RecursionError):
            # This reader takes more than the SDK's, such as half a surrogate pair in an argument.
            given = json.loads(line)
    message = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    id_, method = message.get("id"), message.get("method")
    if (id_ is None and isinstance(method, str)) or (
        method is None and not message.keys().isdisjoint(("result", "error"))
    ):
        return None
    known = id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=told))


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our standard input."""
    async with stdio_server() as (reader, writer):
        await server.run(Heard(reader, writer), writer, server.create_initialization_options(CHANGES))


async def serve_http(server: Server[Any], address: tuple[str, int], token: str) -> None:
    """Serve streamable HTTP at `/mcp` until a signal ends it. Port 0 takes a free one; the URL goes to stderr."""
    host, port = address
    verifier = OneToken(token)
    app = server.streamable_http_app(streamable_http_path=PATH, host=host, token_verifier=verifier)
    app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(verifier))
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"listening on http://{shown}:{listener.getsockname()[1]}{PATH}\n")
    sys.stderr.flush()
    # Without a configuration of its own uvicorn logs to nowhere but the standard library's loggers: stdout stays empty.
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    await uvicorn.Server(config).serve(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidRequest(field="http", reason=f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
