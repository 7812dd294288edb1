"""Upstreams and clients that break the rules, in front of a gateway: nobody hangs, and nobody pays for another one's fault."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from effectfence_pg.async_fence import AsyncFence
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway import probe
from effectfence_pg.gateway.catalogue import Catalogue
from effectfence_pg.gateway.errors import UpstreamUnavailable
from effectfence_pg.gateway.policy import Policy, read_policy
from effectfence_pg.gateway.server import Gateway
from effectfence_pg.gateway.tenants import Tenants
from effectfence_pg.gateway.transports import Way, command_transport
from effectfence_pg.gateway.upstream import Upstream
from effectfence_pg.running.naming import filled
from tests.support import warm
from tests.support.faces import gateway, policy, run
from tests.support.until import until
from tests.support.wire import calling, raw
from tests.support.witness import Witness


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


def test_fences_that_are_let_go_are_not_handed_to_calls_that_come_meanwhile(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = AsyncFence.aclose

    async def slowly(fence: AsyncFence) -> None:
        # As it does while results are still being recorded.
        await asyncio.sleep(0)
        await close(fence)

    monkeypatch.setattr(AsyncFence, "aclose", slowly)
    names = [f"tenant-{number}" for number in range(40)]

    async def use(tenants: Tenants, name: str) -> None:
        fence = await tenants.enter(name)
        await fence.current("nothing")
        tenants.leave(name)

    async def main() -> None:
        tenants = Tenants(database_url)
        for name in names:
            await tenants.enter(name)
        for name in names:
            tenants.leave(name)
        await asyncio.gather(*(use(tenants, name) for name in names[:9]))
        assert len(tenants) <= 32
        await tenants.aclose()

    run(main())


def test_a_request_without_a_session_never_gets_the_reads_of_another_one() -> None:
    gateway = Gateway(Policy(), Catalogue(), None, stdio=False)  # pyright: ignore[reportArgumentType]
    requests = (SimpleNamespace(meta={}, request=None) for _ in range(100))
    # Each is gone before the next one is made, as those of a server are.
    assert len({gateway._session_of(request) for request in requests}) == 100  # pyright: ignore[reportPrivateUsage, reportArgumentType]


def test_an_upstream_that_fails_as_it_is_closed_does_not_keep_the_gateway_from_ending() -> None:
    entered = asyncio.Event()

    @asynccontextmanager
    async def failing() -> AsyncIterator[Any]:
        async with command_transport(["sleep", "60"]).connect() as streams:
            entered.set()
            try:
                yield streams
            finally:
                raise RuntimeError("closing failed")

    async def notified(_: Any) -> None: ...

    async def main() -> None:
        upstream = Upstream(Way(failing), Catalogue(), notified)
        serving = asyncio.ensure_future(upstream.serve())
        wanted = asyncio.ensure_future(upstream.connection())
        await entered.wait()
        upstream.stop()
        serving.cancel()
        assert await asyncio.wait({serving, wanted}, timeout=20) == ({serving, wanted}, set())
        with pytest.raises(UpstreamUnavailable, match="closing failed"):
            await wanted

    run(main())


def test_a_probe_of_a_server_that_says_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "START_SECONDS", 0.1)
    with pytest.raises(UpstreamUnavailable, match="does not say what tools it has"):
        run(probe.probe(command_transport(["sleep", "60"]), "charge", {}, 2))


def test_a_call_that_cannot_be_sent_on_is_refused_by_its_field_and_leaves_its_action_alone(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    command = warm.python("tests.support.lying", str(books.path))
    start = gateway(database_url, command, "--policy", policy(tmp_path, namespace))
    metas: tuple[Any, ...] = ("x", [1], 5)
    wrong = [{"name": "charge", "_meta": meta} for meta in metas]
    *refusals, done = raw(start, *wrong, {"name": ["charge"]}, {}, {"name": "charge", "_meta": None})
    fields = [answer["structuredContent"]["facts"]["field"] for answer in refusals]
    assert fields == ["_meta"] * 3 + ["name"] * 2
    assert not done.get("isError")
    assert books.count() == 1


def test_a_listing_that_breaks_the_rules_does_not_cost_its_other_tools(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    tools = [{"name": "charge", "annotations": "read-only"}, "x", None, {"name": 7}, {"annotations": []}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    command = warm.python("tests.support.lying", str(books.path))
    call = {"name": "charge"}
    fresh, replay = raw(gateway(database_url, command, "--policy", policy(tmp_path, namespace)), call, call)
    assert not fresh.get("isError")
    assert replay["_meta"]["effectfence/replay"]["replayed"] is True
    assert books.count() == 1


def test_a_read_that_was_taken_off_the_list_is_an_effect_when_it_comes_back_unlisted(
    database_url: str, namespace: str, tmp_path: Path, books: Witness
) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([{"name": "look", "annotations": {"readOnlyHint": True}}, {"name": "charge"}]))
    command = warm.python("tests.support.lying", str(books.path))
    numbers = itertools.count()
    unchecked = policy(tmp_path, namespace, "[defaults]\ncheck_calls = false")
    with calling(gateway(database_url, command, "--policy", unchecked)) as call:

        def replays(tool: str) -> bool:
            same = {"name": tool, "arguments": {"x": next(numbers)}}
            return "effectfence/replay" in (call(same), call(same))[1].get("_meta", {})

        assert (replays("look"), replays("charge")) == (False, True)
        listed.write_text(json.dumps([{"name": "charge"}]))
        changed = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
        call({"name": "charge", "arguments": {"answer": changed + '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'}})
        until(lambda: replays("look"))


def test_two_tenants_are_never_spelled_as_one(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('namespace = "{meta.org}-{meta.user}"')
    with pytest.raises(InvalidRequest, match="would be one tenant"):
        read_policy(file)


def test_a_letter_of_a_text_names_no_action() -> None:
    assert filled("intent", "refund:{order[0]}", {"order": ["A17"]}) == "refund:A17"
    with pytest.raises(InvalidRequest, match="no argument"):
        filled("intent", "refund:{order[0]}", {"order": "A17"})
