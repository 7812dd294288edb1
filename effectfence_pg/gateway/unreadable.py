"""Answers that cannot be read: over a pipe nobody but us can say which request they belong to, and it would wait for ever."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from effectfence_pg.serving import Received

_ID: Final = re.compile(r'"id"\s*:\s*(?:"([^"\\]{1,64})"|(\d{1,18})(?=\s*[,}]))')
_ANSWER: Final = re.compile(r'"(?:result|error)"\s*:')
_REQUEST: Final = re.compile(r'^\s*\{[^{]*"method"\s*:')
TOLD: Final = "the answer of the server cannot be read"


class Answered(Received):
    """The messages of a server, an answer that cannot be read as the error that it is to whoever waits for it."""

    async def looked_at(self, item: Any) -> Any:
        """The message; for an answer that could not be read an error with its id. What is no answer stays what it is."""
        if not isinstance(item, ValidationError) or (id_ := _whose(item)) is None:
            return item
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=PARSE_ERROR, message=TOLD)))


def _whose(error: ValidationError) -> str | int | None:
    for part in error.errors(include_url=False, include_context=False):
        given: Any = part["input"]
        if isinstance(given, dict):
            message = cast("dict[str, Any]", given)
            if "method" not in message and ("result" in message or "error" in message):
                id_ = message.get("id")
                return id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
        elif isinstance(given, str) and part["type"] in {"json_invalid", "string_unicode"}:
            return _from_text(given)
    return None


def _from_text(line: str) -> str | int | None:
    # A line of a log that shows a message is no message.
    answer = _ANSWER.search(line)
    if not line.lstrip().startswith("{") or _REQUEST.match(line) or answer is None:
        return None
    ids = list(_ID.finditer(line))
    if not ids:
        return None
    # What is answered may have ids of its own: that of the message stands before it, or behind all of them.
    found = ids[0] if ids[0].start() < answer.start() else ids[-1]
    return found[1] if found[1] is not None else int(found[2])
