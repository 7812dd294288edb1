"""Identical calls through several gateway processes at once: one of them runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcp import Client

from tests.support.faces import gateway, policy, run, upstream
from tests.support.witness import Witness

CALLS = 12
ROUNDS = 3
GATEWAYS = 4


def test_twelve_identical_calls_through_one_two_or_four_gateways_execute_once(
    database_url: str, namespace: str, tmp_path: Path
) -> None:
    books = Witness(tmp_path / "books")
    options = ("--policy", policy(tmp_path, namespace))

    async def one(clients: list[Client], ready: asyncio.Event, done: asyncio.Event) -> None:
        async with Client(gateway(database_url, upstream(books.path), *options)) as client:
            clients.append(client)
            if len(clients) == GATEWAYS:
                ready.set()
            await done.wait()

    async def main() -> None:
        clients: list[Client] = []
        ready, done = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(GATEWAYS):
                group.create_task(one(clients, ready, done))
            await ready.wait()
            for through in (1, 2, GATEWAYS):
                for number in range(ROUNDS):
                    arguments = {"x": f"{through}-{number}"}
                    calls = (clients[at % through].call_tool("charge", arguments) for at in range(CALLS))
                    answers = await asyncio.gather(*calls)
                    assert all(not answer.is_error for answer in answers)
                    assert all(answer.structured_content == answers[0].structured_content for answer in answers)
            done.set()

    run(main())
    ran = [line["arguments"]["x"] for line in books.lines()]
    assert sorted(ran) == sorted(f"{through}-{number}" for through in (1, 2, GATEWAYS) for number in range(ROUNDS))
