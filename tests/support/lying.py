"""An MCP server for tests whose answers are not its own: it writes what it is told to, whether that is an answer or not.

``python -m tests.support.lying BOOKS``: a call's argument ``answer`` is written as it stands, with ``ID`` for the request's id and
``NUMBER`` for that of the call and ``BYTE`` for one that is no UTF-8; of ``answers`` each call gets the next one, the last one for ever. ``tools.json`` beside BOOKS is
the list of tools. Every call is one line in BOOKS, which is the witness.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.witness import Witness

TOOL = {"name": "charge", "inputSchema": {"type": "object"}}
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "lying", "version": "1"},
}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _answer(request: dict[str, Any], witness: Witness, folder: Path) -> str:
    id_, method, params = json.dumps(request["id"]), request["method"], request.get("params", {})
    if method == "tools/call":
        witness.happened(str(params["name"]), arguments=params.get("arguments"))
        arguments, number = params.get("arguments") or {}, witness.count()
        answers = arguments.get("answers") or [arguments.get("answer", _result('{"content":[]}'))]
        return (
            answers[min(number, len(answers)) - 1]
            .replace("ID", id_)
            .replace("NUMBER", str(number))
            .replace("BYTE", "\udce9")
        )
    if method == "initialize":
        return _result(json.dumps(GREETING)).replace("ID", id_)
    if method == "tools/list":
        file = folder / "tools.json"
        tools = file.read_text(encoding="utf-8") if file.exists() else json.dumps([TOOL])
        return _result(f'{{"tools":{tools}}}').replace("ID", id_)
    return f'{{"jsonrpc":"2.0","id":{id_},"error":{{"code":-32601,"message":"Method not found"}}}}'


def _result(text: str) -> str:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{text}}}'


if __name__ == "__main__":
    books = Path(sys.argv[1])
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # pyright: ignore[reportAttributeAccessIssue]
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            _say(_answer(message, Witness(books), books.parent))
