"""A charge server on streamable HTTP that knows only the older era of the protocol, with sessions.

``python -m tests.support.old_server --http HOST:PORT BOOKS``; the token is that of EFFECTFENCE_MCP_TOKEN.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from effectfence_pg.gateway.charges import make
from effectfence_pg.serving import bearer_token, parse_address, serve_http


async def _old(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "server/discover":
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    return await call_next(ctx)


if __name__ == "__main__":
    server = make(Path(sys.argv[3]), 0.0)
    server.middleware.append(_old)
    asyncio.run(serve_http(server, parse_address(sys.argv[2]), bearer_token(None)))
