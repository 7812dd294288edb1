"""One charge, asked for twelve times: by itself, behind a gateway, behind two of them, and with a gateway that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from effectfence_pg.gateway.charges import charged
from effectfence_pg.serving import TOKEN_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

CALLS: Final = 12
LEASE_SECONDS: Final = 2.0
"""How long a gateway may be unheard of here; the default of the library is a minute."""
STARTED_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.02
EXPECTED: Final = {"raw": CALLS, "gateway": 1, "two_gateways": 1, "killed_after_effect": 1}


@dataclass(frozen=True)
class Place:
    """Where the demo works: a database, a folder for books and a policy, and a tenant of this run's own."""

    url: str
    folder: Path
    namespace: str

    def books(self, name: str) -> Path:
        """The provider's own books: nobody asks the fence how often money moved."""
        return self.folder / f"{name}.books"

    def policy(self) -> Path:
        """That tenant, and leases short enough to watch one run out."""
        file = self.folder / "policy.toml"
        if not file.exists():
            text = f'namespace = "{self.namespace}"\ndrain_seconds = 0.0\n'
            file.write_text(f"{text}[defaults]\nlease_seconds = {LEASE_SECONDS}\n", encoding="utf-8")
        return file

    def provider(self, name: str, pause_seconds: float = 0.0) -> list[str]:
        """The charge server."""
        module = "effectfence_pg.gateway.charges"
        return [sys.executable, "-m", module, str(self.books(name)), "--pause-seconds", str(pause_seconds)]

    def gateway(self, provider: list[str], *options: str) -> list[str]:
        """A gateway in front of it."""
        start = [sys.executable, "-m", "effectfence_pg", "gateway", "--policy", str(self.policy()), *options]
        return [*start, "--", *provider]

    def env(self, **more: str) -> dict[str, str]:
        """The environment of a child."""
        return {**os.environ, DATABASE_VARIABLE: self.url, **more}


async def run(place: Place, say: Callable[[str], None]) -> tuple[dict[str, int], bool]:
    """The charges of each part, counted in the books; and whether the last one was found fenced."""
    say(f"{CALLS} identical calls of a charge server: by itself, behind a gateway, behind two at once")
    say("and one charge whose gateway is killed before it can record it")
    one = place.gateway(place.provider("gateway"))
    two = place.gateway(place.provider("two_gateways"))
    # Each part has an order and books of its own, so that they can be seen at once.
    *_, fenced = await asyncio.gather(
        _fire(place, "raw", place.provider("raw")),
        _fire(place, "gateway", one),
        _fire(place, "two_gateways", two, two),
        _killed(place, "killed_after_effect"),
    )
    return {name: len(charged(place.books(name))) for name in EXPECTED}, fenced


@contextlib.asynccontextmanager
async def _clients(place: Place, *commands: list[str]) -> AsyncGenerator[list[Client]]:
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for command in commands:
            start = StdioServerParameters(command=command[0], args=command[1:], env=place.env())
            clients.append(await stack.enter_async_context(Client(stdio_client(start))))
        yield clients


async def _fire(place: Place, name: str, *commands: list[str]) -> None:
    async with _clients(place, *commands) as clients:
        turns = (clients[number % len(clients)] for number in range(CALLS))
        await asyncio.gather(*(client.call_tool("charge", {"order_id": name}) for client in turns))


async def _killed(place: Place, name: str) -> bool:
    """A gateway dies between the effect and its record; whether another one finds it fenced."""
    await _die(place, name)
    async with _clients(place, place.gateway(place.provider(name))) as clients:
        again = await clients[0].call_tool("charge", {"order_id": name})
    told: Any = again.structured_content
    return again.is_error and dict(told or {}).get("code") == "intent_failed"


async def _die(place: Place, name: str) -> None:
    """The provider charges at once and answers much later; meanwhile its gateway is killed."""
    token = uuid.uuid4().hex
    command = place.gateway(place.provider(name, pause_seconds=600.0), "--http", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        *command,
        env=place.env(**{TOKEN_VARIABLE: token}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        url = await asyncio.wait_for(_listening(process), STARTED_SECONDS)
        call = asyncio.ensure_future(_charge(url, token, name))
        async with asyncio.timeout(STARTED_SECONDS):
            while not charged(place.books(name)) and not call.done():  # noqa: ASYNC110 (another process writes it)
                await asyncio.sleep(LOOK_SECONDS)
        process.kill()
        await asyncio.wait({call})
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process) -> str:
    while process.stderr is not None and (line := await process.stderr.readline()):
        words = line.decode(errors="replace").split()
        if words[:2] == ["listening", "on"]:
            return words[2]
    raise RuntimeError("the gateway did not start")


async def _charge(url: str, token: str, name: str) -> Any:
    with contextlib.suppress(MCPError, httpx2.HTTPError, BaseExceptionGroup):
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=None) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.call_tool("charge", {"order_id": name})
    return None
