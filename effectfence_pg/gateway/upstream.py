"""The MCP server behind the gateway: connected to when somebody calls, and connected to anew when it ended."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_to_notification

from effectfence_pg.gateway.connection import Connection, Watched
from effectfence_pg.gateway.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import mcp_types as types

    from effectfence_pg.gateway.catalogue import Catalogue
    from effectfence_pg.gateway.transports import Way

CONNECT_SECONDS: Final = 120.0
"""Some commands install themselves first."""


class Upstream:
    """Connections to one upstream, one at a time. `serve` has to run beside whoever asks for one.

    Args:
        way: How to get there.
        catalogue: Learns what tools there are.
        notified: Gets the upstream's notifications.
    """

    def __init__(
        self,
        way: Way,
        catalogue: Catalogue,
        notified: Callable[[types.ServerNotification], Awaitable[None]],
    ) -> None:
        self.callbacks: dict[str, Any] = {}
        self._way = way
        self._catalogue = catalogue
        self._notified = notified
        self._wanted = asyncio.Event()
        self._ready: asyncio.Future[Connection] | None = None
        self._stopped = False
        self.connected: Connection | None = None

    async def connection(self) -> Connection:
        """The connection; a new one when there is none or it ended.

        Raises:
            UpstreamUnavailable: There is none to be had.
        """
        if self.connected is not None and not self.connected.ended:
            return self.connected
        if self._ready is None or self._ready.done():
            self._ready = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return await asyncio.shield(self._ready)

    def stop(self) -> None:
        """Say this before `serve` is cancelled: a transport that fails as it closes would hide the cancellation from it."""
        self._stopped = True

    async def serve(self) -> None:
        """Connect whenever that is wanted; ends when it is cancelled after `stop`."""
        while not self._stopped:
            await self._wanted.wait()
            self._wanted.clear()
            ready = self._ready
            try:
                async with AsyncExitStack() as stack:
                    connection = await self._connect(stack)
                    self.connected = connection
                    if ready is not None and not ready.done():
                        ready.set_result(connection)
                    await self._until_ended(connection)
            except Exception as error:  # noqa: BLE001 (whatever keeps an upstream from starting, its callers are told)
                self._failed(ready, error)
            finally:
                self.connected = None

    async def _connect(self, stack: AsyncExitStack) -> Connection:
        async with asyncio.timeout(CONNECT_SECONDS):
            channel = Watched(*await stack.enter_async_context(self._way.connect()))
            session = ClientSession(dispatcher=channel, message_handler=self._message, **self.callbacks)
            await stack.enter_async_context(session)
            try:
                await session.discover()
            except (MCPError, RuntimeError, ValueError):
                await session.initialize()
            connection = Connection(session, channel, self._catalogue, self._way.refused)
            if session.server_capabilities is not None and session.server_capabilities.tools is not None:
                await connection.learn()
        return connection

    async def _until_ended(self, connection: Connection) -> None:
        capabilities = connection.session.server_capabilities
        if not connection.modern or capabilities is None or not _changes(capabilities):
            await connection.until_ended()
            return
        listening = asyncio.ensure_future(self._listen(connection.session))
        try:
            await connection.until_ended()
        finally:
            listening.cancel()

    async def _listen(self, session: ClientSession) -> None:
        """Changes of a modern upstream come on a stream that has to be asked for."""
        try:
            async with listen(
                session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                async for event in events:
                    await self._notified(event_to_notification(event, {}))
        except (MCPError, RuntimeError, TimeoutError):
            return

    async def _message(self, message: Any) -> None:
        if not isinstance(message, Exception):
            await self._notified(message)

    def _failed(self, ready: asyncio.Future[Connection] | None, error: Exception) -> None:
        if ready is not None and not ready.done():
            ready.set_exception(UpstreamUnavailable(reason=self._way.told(error)))


def _changes(capabilities: types.ServerCapabilities) -> bool:
    kinds = (capabilities.tools, capabilities.prompts, capabilities.resources)
    return any(kind is not None and kind.list_changed for kind in kinds)
