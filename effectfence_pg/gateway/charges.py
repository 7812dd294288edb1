"""A charge server to try a gateway on: ``python -m effectfence_pg.gateway.charges BOOKS``.

Every charge is one line in a file, the books, which is the witness: nobody has to ask the server or the fence how often it
charged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from effectfence_pg.serving import serve_stdio

_ORDER = {"order_id": {"type": "string"}}
TOOLS = [
    types.Tool(
        name="charge",
        description="Charge an order.",
        input_schema={
            "type": "object",
            "properties": {**_ORDER, "cents": {"type": "integer", "default": 4900}},
            "required": ["order_id"],
        },
        annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False),
    ),
    types.Tool(
        name="charges",
        description="The charges of an order.",
        input_schema={"type": "object", "properties": _ORDER, "required": ["order_id"]},
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
]


def charged(books: Path, order: str | None = None) -> list[dict[str, Any]]:
    """What the books say."""
    lines = books.read_text(encoding="utf-8").splitlines() if books.exists() else []
    return [found for found in map(json.loads, lines) if order in {None, found["order_id"]}]


def charge(books: Path, order: str, cents: int) -> dict[str, Any]:
    """Take the money: one write in append mode is one line, whoever else writes."""
    entry = {"charge_id": f"ch_{uuid.uuid4().hex[:12]}", "order_id": order, "cents": cents}
    descriptor = os.open(books, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(descriptor)
    return entry


def make(books: Path, pause_seconds: float) -> Server[Any]:
    """The server. `pause_seconds` pass between a charge and its answer."""

    async def listed(context: Any, params: Any) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=TOOLS)

    async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        del context
        arguments = params.arguments or {}
        order = str(arguments.get("order_id", ""))
        if params.name == "charge":
            found: dict[str, Any] = charge(books, order, int(arguments.get("cents", 4900)))
            await asyncio.sleep(pause_seconds)
        elif params.name == "charges":
            found = {"charges": charged(books, order)}
        else:
            raise MCPError(types.INVALID_PARAMS, "unknown tool")
        text = types.TextContent(type="text", text=json.dumps(found))
        return types.CallToolResult(content=[text], structured_content=found)

    return Server("charges", version="1", on_list_tools=listed, on_call_tool=called)


def main() -> None:
    """Serve over stdio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("books", type=Path)
    parser.add_argument("--pause-seconds", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(serve_stdio(make(given.books, given.pause_seconds)))


if __name__ == "__main__":
    main()
