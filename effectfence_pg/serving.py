"""How a server of the Model Context Protocol is served, over stdio or streamable HTTP, and what its refusals look like.

Shared by the faces that speak MCP. Needs the extra ``mcp`` or ``gateway``.
"""

from __future__ import annotations

import hmac
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from starlette.middleware.authentication import AuthenticationMiddleware

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.running.messages import tool_message

if TYPE_CHECKING:
    from pathlib import Path

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
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(field=field, reason=f"cannot be read: {error}") from error
    if not token:
        raise InvalidRequest(field=field, reason="is empty: serving HTTP needs a bearer token")
    if len(token.encode()) < MIN_TOKEN_BYTES or not token.isascii() or " " in token:
        raise InvalidRequest(field=field, reason=f"is no token of at least {MIN_TOKEN_BYTES} ASCII characters")
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


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our standard input."""
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options(CHANGES))


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
