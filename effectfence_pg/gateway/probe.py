"""Identical calls at once, and how many different answers they get: more than one proves that the tool ran more than once."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcp import Client
from mcp.shared.exceptions import MCPError

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway.errors import UpstreamUnavailable
from effectfence_pg.gateway.upstream import told

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from effectfence_pg.gateway.transports import Way

MAX_PAGES: Final = 1000
ANSWER_SECONDS: Final = 60.0
START_SECONDS: Final = 60.0
"""Until the server has said what tools it has. Some commands install themselves first."""
DOUBLE: Final = "double_fire"
INCONCLUSIVE: Final = "inconclusive"


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe saw.

    Attributes:
        tool: The tool.
        calls: How many calls were made.
        answered: How many were answered without an error.
        errors: How many were answered with one, or not at all.
        distinct: How many different answers there were, what stands in `_meta` left out.
    """

    tool: str
    calls: int
    answered: int
    errors: int
    distinct: int

    @property
    def verdict(self) -> str:
        """Equal answers prove nothing: a tool may run twice and say the same."""
        return DOUBLE if self.distinct > 1 else INCONCLUSIVE

    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        counts = {"calls": self.calls, "answered": self.answered, "errors": self.errors, "distinct": self.distinct}
        return {"tool": self.tool, "verdict": self.verdict, **counts}


async def probe(way: Way, tool: str, arguments: dict[str, Any], calls: int) -> Found:
    """Fire identical calls at one tool at once. They are real: whatever the tool does is done.

    Raises:
        UpstreamUnavailable: There is no server there.
        InvalidRequest: It has no such tool.
    """
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(START_SECONDS):
                client = await stack.enter_async_context(Client(way.connect(), cache=None))
                listed = await _lists(client, tool)
            wanted = range(calls if listed else 0)
            answers = await asyncio.gather(
                *(client.call_tool(tool, arguments, read_timeout_seconds=ANSWER_SECONDS) for _ in wanted),
                return_exceptions=True,
            )
    except TimeoutError as error:
        raise UpstreamUnavailable(reason="it does not say what tools it has") from error
    except (OSError, MCPError, BaseExceptionGroup) as error:
        raise UpstreamUnavailable(reason=told(error)) from error
    if not listed:
        raise InvalidRequest(field="tool", reason=f"the server lists no tool {tool!r}")
    good = [_value(answer) for answer in answers if not isinstance(answer, BaseException) and not answer.is_error]
    return Found(tool, calls, len(good), calls - len(good), len(set(good)))


async def _lists(client: Client, tool: str) -> bool:
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        if any(listed.name == tool for listed in page.tools):
            return True
        cursor = page.next_cursor
        if cursor is None:
            break
    return False


def _value(answer: CallToolResult) -> str:
    """What a model sees, as one text for one value."""
    shown = answer.model_dump(mode="json", by_alias=True, exclude={"meta"})
    return json.dumps(shown, sort_keys=True)
