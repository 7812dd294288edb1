"""An MCP server for tests of the gateway, by hand: what goes over its wire is exactly what is written here.

``python -m tests.support.upstream BOOKS [--modern] [--many N]``: every call of a tool is one line in BOOKS, which is the
witness.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.witness import Witness

MEDIA = {
    "content": [
        {"type": "text", "text": "caf\u00e9 \U0001f600 \u0000", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png", "_meta": {"a": 1}},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "a"}},
        {"type": "resource_link", "uri": "file:///b", "name": "b", "size": 12345678901234567},
    ],
    "structuredContent": {"none": None, "float": 1.0, "tiny": 1e-7, "big": 2**80, "list": [None, {"x": None}], "": "k"},
    "_meta": {"vendor/trace": {"id": None}},
}
READ_ONLY = {"readOnlyHint": True}


class Server:
    def __init__(self, books: str, modern: bool, many: int) -> None:
        self.witness = Witness(books)
        self.folder = Path(books).parent
        self.modern = modern
        self.tools = [
            _tool(name) for name in ("charge", "slow", "fail", "reject", "die", "big", "media", "ask", "meta")
        ]
        self.tools += [_tool("progress"), _tool("grow"), _tool("flip"), _tool("elicit"), _tool("read", READ_ONLY)]
        self.tools += [_tool(f"tool-{number:04d}") for number in range(many)]
        self.asked: dict[str, asyncio.Future[Any]] = {}

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    async def answer(self, request: dict[str, Any]) -> None:
        try:
            result = await self.result(request)
        except LookupError as error:
            code, text = error.args
            self.send({"id": request["id"], "error": {"code": code, "message": text}})
        else:
            self.send({"id": request["id"], "result": result})

    async def result(self, request: dict[str, Any]) -> Any:
        method, params = request["method"], request.get("params", {})
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}, "completions": {}}
        if method == "server/discover" and self.modern:
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "instructions": "Be careful."}
            info = {"io.modelcontextprotocol/serverInfo": {"name": "by-hand", "version": "1"}}
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": info, **more}
        if method == "initialize" and not self.modern:
            info = {"serverInfo": {"name": "by-hand", "version": "1"}, "instructions": "Be careful."}
            return {"protocolVersion": "2025-06-18", "capabilities": capabilities, **info}
        if method == "tools/list":
            return self.page(int(params.get("cursor", 0)))
        if method == "tools/call":
            found = await self.call(params, request["id"])
            return {**found, "resultType": found.get("resultType", "complete")} if self.modern else found
        fixed: dict[str, Any] = {
            "resources/list": {"resources": [{"uri": "file:///a", "name": "a"}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "t"}]},
            "resources/read": {"contents": [{"uri": "file:///a", "text": "content of a"}]},
            "prompts/list": {"prompts": [{"name": "p"}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "do it"}}]},
            "completion/complete": {"completion": {"values": ["abc"]}},
        }
        if method not in fixed:
            raise LookupError(-32601, "Method not found")
        return fixed[method]

    def page(self, start: int) -> dict[str, Any]:
        page = {"tools": self.tools[start : start + 100]}
        more = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"} if self.modern else {}
        return {**page, **more, **({"nextCursor": str(start + 100)} if start + 100 < len(self.tools) else {})}

    async def call(self, params: dict[str, Any], id_: Any) -> dict[str, Any]:
        name, arguments = params["name"], params.get("arguments", {})
        self.witness.happened(name, arguments=arguments, meta=params.get("_meta", {}))
        number = self.witness.count(name)
        if name == "slow":
            while not (self.folder / "go").exists():  # noqa: ASYNC110 (another process says when)
                await asyncio.sleep(0.01)
        if name == "die":
            os._exit(3)
        if name == "reject":
            raise LookupError(-32602, "no such thing")
        if name == "fail":
            return {"content": [{"type": "text", "text": f"failed {number}"}], "isError": True, "structuredContent": {}}
        if name == "big":
            return {"content": [{"type": "text", "text": "\u00fc\U0001f600x" * 300_000}]}
        if name == "media":
            return MEDIA
        if name == "ask" and "inputResponses" not in params:
            ask = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
            asked = {"sure": {"method": "elicitation/create", "params": ask}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "state-1"}
        if name == "meta":
            return _text("meta", {"meta": params.get("_meta", {})})
        if name == "progress":
            token = params["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            self.send({"method": "notifications/progress", "params": progress})
        if name == "grow":
            self.tools.append(_tool(f"grown-{number}"))
            self.send({"method": "notifications/tools/list_changed"})
        if name == "flip":
            self.tools[0]["annotations"] = READ_ONLY
            self.send({"method": "notifications/tools/list_changed"})
        if name == "elicit":
            ask = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}}}
            self.asked["e"] = asyncio.get_running_loop().create_future()
            self.send({"id": "e", "method": "elicitation/create", "params": ask})
            return _text("elicit", await self.asked["e"])
        return _text(name, {"number": number, "id": f"{name}-{os.getpid()}-{id_}"})


def _tool(name: str, annotations: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
        **({"annotations": annotations} if annotations else {}),
    }


def _text(name: str, structured: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": name}], "structuredContent": structured}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("books")
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--many", type=int, default=0)
    given = parser.parse_args()
    server = Server(given.books, given.modern, given.many)
    running: set[asyncio.Task[None]] = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        message = json.loads(line)
        if "method" not in message:
            server.asked[message["id"]].set_result(message.get("result", message.get("error")))
        elif "id" in message:
            running.add(asyncio.get_running_loop().create_task(server.answer(message)))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(main())
