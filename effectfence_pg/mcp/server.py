"""The server: lists the tools, checks what it is given, and turns refusals into results."""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from effectfence_pg.errors import FenceError
from effectfence_pg.mcp.tools import TOOLS
from effectfence_pg.serving import refused
from effectfence_pg.values.captured import invalid_request

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from effectfence_pg.async_fence import AsyncFence
    from effectfence_pg.mcp.tools import Tool

log = logging.getLogger("effectfence_pg.mcp")

INSTRUCTIONS: Final = (
    "A fence in front of side effects. Before you run one, call fence_prepare with an intent that names the action (the "
    "same text for every retry of it) and the domain it acts on. Run it only when the answer is `fresh`, then call "
    "fence_commit with what it returned. A refusal carries a stable code and says what to do."
)


class FenceServer:
    """The tools of one fence.

    Args:
        fence: The fence.
        operator: Whether tools that decide over unknown outcomes are served as well.
    """

    def __init__(self, fence: AsyncFence, *, operator: bool = False) -> None:
        self._fence = fence
        self._tools = {tool.name: tool for tool in TOOLS if operator or not tool.operator}
        self._listed = types.ListToolsResult(tools=[tool.listed() for tool in self._tools.values()])
        self.server: Server[Any] = Server(
            "effectfence-pg",
            version=version("effectfence-pg"),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return self._listed

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        del context
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name[:64]!r}")
        return types.CallToolResult.model_validate(await self._answer(tool, params.arguments or {}))

    async def _answer(self, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            found = await tool.call(self._fence, _checked(tool, arguments))
        except FenceError as error:
            return refused(error)
        except Exception:
            log.exception("%s failed", tool.name)
            return refused(FenceError())
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return {"content": [{"type": "text", "text": text}], "structuredContent": found}


def _checked(tool: Tool, arguments: dict[str, Any]) -> Any:
    try:
        return tool.takes.model_validate(arguments)
    except ValidationError as error:
        raise invalid_request(error) from None
