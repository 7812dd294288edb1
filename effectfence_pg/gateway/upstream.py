"""The MCP server behind the gateway: connected to when somebody calls, connected to anew when it ended, never asked twice.

Results are handed on as they came off the wire. The SDK's own client would check them against schemas and turn an answer into
an error after the tool has run, and would send a call again whose headers were refused.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.subscriptions import event_to_notification
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from effectfence_pg.gateway.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import mcp_types as types
    from mcp.shared.dispatcher import CallOptions, ProgressFnT

    from effectfence_pg.gateway.catalogue import Catalogue

ENVELOPE: Final = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
CONNECT_SECONDS: Final = 30.0
MAX_PAGES: Final = 1000


class Watched(JSONRPCDispatcher[Any]):
    """A channel that says when it ended."""

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self.ended = asyncio.Event()

    async def run(self, *arguments: Any, **options: Any) -> None:
        """Until the other side closes."""
        try:
            await super().run(*arguments, **options)
        finally:
            self.ended.set()


class Connection:
    """One connection to the upstream, negotiated."""

    def __init__(self, session: ClientSession, channel: Watched, catalogue: Catalogue) -> None:
        self.session = session
        self._channel = channel
        self._catalogue = catalogue

    @property
    def ended(self) -> bool:
        """Whether the upstream is gone."""
        return self._channel.ended.is_set()

    @property
    def modern(self) -> bool:
        """Whether every request carries its own envelope."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def until_ended(self) -> None:
        """Wait for its end."""
        await self._channel.ended.wait()

    async def request(
        self, method: str, params: Mapping[str, Any], envelope: Mapping[str, Any], progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send one request, once, and give back its result as it came.

        Args:
            method: The method.
            params: Its parameters.
            envelope: What the client says of itself, for an upstream that wants it with every request.
            progress: Told what the upstream says on the way.

        Raises:
            MCPError: The upstream's error, or the end of the connection.
        """
        sent = dict(params)
        given: dict[str, Any] = sent.get("_meta") or {}
        meta = {key: value for key, value in given.items() if key not in ENVELOPE}
        # The token of the client's request is another one than that of ours.
        meta.pop("progressToken", None)
        version = self.session.protocol_version or ""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if self.modern:
            meta |= {**envelope, PROTOCOL_VERSION_META_KEY: version}
            headers |= self._routing(method, sent)
        sent["_meta"] = meta
        if not meta:
            del sent["_meta"]
        options: CallOptions = {"headers": headers}
        if progress is not None:
            options["on_progress"] = progress
        return await self._channel.send_raw_request(method, sent, options)

    def _routing(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call":
                headers |= mcp_param_headers(self._catalogue.headers(name), params.get("arguments") or {})
        return headers

    async def learn(self) -> None:
        """List the tools, all pages."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.request("tools/list", {} if cursor is None else {"cursor": cursor}, self.plain_envelope())
            self._catalogue.learn(page.get("tools", ()))
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def plain_envelope(self) -> dict[str, Any]:
        """The envelope of requests that are the gateway's own."""
        return {CLIENT_INFO_META_KEY: {"name": "effectfence-pg", "version": "0"}, CLIENT_CAPABILITIES_META_KEY: {}}


class Upstream:
    """Connections to one upstream, one at a time. `serve` has to run beside whoever asks for one.

    Args:
        transport: Makes the streams of a new connection.
        catalogue: Learns what tools there are.
        notified: Gets the upstream's notifications.
    """

    def __init__(
        self,
        transport: Callable[[], Any],
        catalogue: Catalogue,
        notified: Callable[[types.ServerNotification], Awaitable[None]],
    ) -> None:
        self.callbacks: dict[str, Any] = {}
        self._transport = transport
        self._catalogue = catalogue
        self._notified = notified
        self._wanted = asyncio.Event()
        self._ready: asyncio.Future[Connection] | None = None
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

    async def serve(self) -> None:
        """Connect whenever that is wanted; ends when it is cancelled."""
        while True:
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
            channel = Watched(*await stack.enter_async_context(self._transport()))
            session = ClientSession(dispatcher=channel, message_handler=self._message, **self.callbacks)
            await stack.enter_async_context(session)
            try:
                await session.discover()
            except (MCPError, RuntimeError, ValueError):
                await session.initialize()
            connection = Connection(session, channel, self._catalogue)
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
            ready.set_exception(UpstreamUnavailable(reason=told(error)))


def _changes(capabilities: types.ServerCapabilities) -> bool:
    kinds = (capabilities.tools, capabilities.prompts, capabilities.resources)
    return any(kind is not None and kind.list_changed for kind in kinds)


def told(error: BaseException) -> str:
    """The first plain error of a group, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
