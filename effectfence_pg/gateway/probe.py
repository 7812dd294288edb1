"""Identical calls at once, and what their answers prove about how often the tool ran."""

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
from effectfence_pg.gateway.executions import proven

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from effectfence_pg.gateway.transports import Way

MAX_PAGES: Final = 1000
ANSWER_SECONDS: Final = 60.0
START_SECONDS: Final = 60.0
"""Until the server has said what tools it has. Some commands install themselves first."""
DOUBLE: Final = "double_fire"
DIFFER: Final = "answers_differ"
INCONCLUSIVE: Final = "inconclusive"
SHOWN: Final = 200
"""Characters of an answer that is shown."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe saw.

    Attributes:
        tool: The tool.
        calls: How many calls were made.
        answered: How many were answered without an error.
        errors: How many were answered with one, or not at all.
        distinct: How many different answers there were among those without an error, what stands in `_meta` left out.
        executions: At least how often the tool ran, as far as the answers prove it; 0 when they do not.
        identifier: What the server calls the value that proves it.
        examples: Two different answers, or none.
    """

    tool: str
    calls: int
    answered: int
    errors: int
    distinct: int
    executions: int = 0
    identifier: str | None = None
    examples: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Equal answers prove nothing: a tool may run twice and say the same. Nor do different ones: it may have refused."""
        if self.executions > 1:
            return DOUBLE
        return DIFFER if self.distinct > 1 else INCONCLUSIVE

    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        counts = {"calls": self.calls, "answered": self.answered, "errors": self.errors, "distinct": self.distinct}
        proof = {"executions": self.executions, "identifier": self.identifier, "examples": list(self.examples)}
        return {"tool": self.tool, "verdict": self.verdict, **counts, **proof}


async def probe(way: Way, tool: str, arguments: dict[str, Any], calls: int, identifier: str | None = None) -> Found:
    """Fire identical calls at one tool at once. They are real: whatever the tool does is done.

    Args:
        way: How to get to the server.
        tool: The tool.
        arguments: The same for every call.
        calls: How many.
        identifier: The name of a value that every execution makes anew; what the server calls an id when not given.

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
        raise UpstreamUnavailable(reason=way.told(error)) from error
    if not listed:
        raise InvalidRequest(field="tool", reason=f"the server lists no tool {tool!r}")
    # An error may come before the tool has done anything, and a refusal is one as well: it counts for no execution.
    good = [_shown(answer) for answer in answers if not isinstance(answer, BaseException) and not answer.is_error]
    texts = list(dict.fromkeys(json.dumps(shown, sort_keys=True) for shown in good))
    proof = proven(good, identifier)
    examples = tuple(text[:SHOWN] for text in texts[:2]) if len(texts) > 1 else ()
    return Found(tool, calls, len(good), calls - len(good), len(texts), proof.executions, proof.identifier, examples)


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


def _shown(answer: CallToolResult) -> dict[str, Any]:
    """What a model sees."""
    return answer.model_dump(mode="json", by_alias=True, exclude={"meta"})
