"""Putting a gateway together and serving it until its client or a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from effectfence_pg import serving
from effectfence_pg.gateway.catalogue import Catalogue
from effectfence_pg.gateway.fencing import Fencing
from effectfence_pg.gateway.server import Gateway
from effectfence_pg.gateway.tenants import Tenants
from effectfence_pg.gateway.upstream import Upstream
from effectfence_pg.values import FenceConfig

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from effectfence_pg.gateway.policy import Policy
    from effectfence_pg.gateway.transports import Way

log = logging.getLogger("effectfence_pg.gateway")


async def serve(
    url: str,
    policy: Policy,
    way: Way,
    address: tuple[str, int] | None = None,
    token: str = "",
) -> None:
    """Serve one upstream.

    Args:
        url: The database.
        policy: What is done with which tool.
        way: How to get to the upstream.
        address: Where to listen; stdio when not given.
        token: What clients have to show over HTTP.
    """
    catalogue = Catalogue()
    tenants = Tenants(url, FenceConfig(row_security=policy.row_security))
    fencing = Fencing(policy, catalogue, tenants)
    gateway = Gateway(policy, catalogue, fencing, stdio=address is None)
    upstream = Upstream(way, catalogue, gateway.notified)
    gateway.behind(upstream)
    # A database that cannot be used is said before anybody is served.
    await _usable(tenants)
    connecting = asyncio.ensure_future(upstream.serve())
    signalled = False
    try:
        if address is None:
            signalled = await _until_signal(serving.serve_stdio(gateway.server))
        else:
            await serving.serve_http(gateway.server, address, token)
        await _drain(fencing, policy.drain_seconds)
    finally:
        upstream.stop()
        connecting.cancel()
        await asyncio.wait({connecting})
        await tenants.aclose()
    if signalled:
        # A thread is blocked in a read of our standard input, and nothing but the end of the process ends that.
        os._exit(0)


async def _usable(tenants: Tenants) -> None:
    fence = await tenants.enter("default")
    try:
        await fence.current("nothing")
    finally:
        tenants.leave("default")


async def _drain(fencing: Fencing, seconds: float) -> None:
    """What is in flight is seen through; what is not done by then stays an unknown outcome."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(fencing.background.finish(), seconds)


async def _until_signal(serving_client: Coroutine[Any, Any, None]) -> bool:
    """Serve until the client is gone, or a signal comes; whether one came. Signals that come later change nothing."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    client = asyncio.ensure_future(serving_client)
    signalled = asyncio.ensure_future(ended.wait())
    await asyncio.wait({client, signalled}, return_when=asyncio.FIRST_COMPLETED)
    if not client.done():
        return True
    signalled.cancel()
    await client
    return False
