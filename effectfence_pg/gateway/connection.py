"""One connection to the server behind the gateway: what is asked goes out once, and comes back as it came off the wire.

The SDK's own client would check results against schemas and turn an answer into an error after the tool has run, and would send
a call again whose headers were refused.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final

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
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from effectfence_pg.gateway.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client.session import ClientSession
    from mcp.shared.dispatcher import CallOptions, ProgressFnT

    from effectfence_pg.gateway.catalogue import Catalogue

ENVELOPE: Final = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
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

    def __init__(self, session: ClientSession, channel: Watched, catalogue: Catalogue, refused: set[str]) -> None:
        self.session = session
        self._ids = itertools.count(1)
        self._refused = refused
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
            UpstreamUnavailable: It refused to take it, for it has forgotten us.
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
        id_ = f"gateway-{next(self._ids)}"
        options: CallOptions = {"headers": headers, "request_id": id_}
        if progress is not None:
            options["on_progress"] = progress
        try:
            return await self._channel.send_raw_request(method, sent, options)
        except MCPError as error:
            if id_ in self._refused:
                # The server does not know our session any more, and so did nothing: the next request begins another one.
                self._refused.discard(id_)
                self._channel.ended.set()
                raise UpstreamUnavailable(reason="it was started anew") from error
            raise

    async def notify(self, method: str) -> None:
        """Say that something happened."""
        await self._channel.notify(method, None)

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
        listed: set[str] = set()
        readable = True
        for _ in range(MAX_PAGES):
            page = await self.request("tools/list", {} if cursor is None else {"cursor": cursor}, self.plain_envelope())
            readable = readable and isinstance(page.get("tools"), list)
            listed |= self._catalogue.learn(page.get("tools", ()))
            cursor = page.get("nextCursor")
            if not cursor:
                # What is no listing does not say that there are no tools.
                if readable:
                    self._catalogue.forget_others(listed)
                return

    def plain_envelope(self) -> dict[str, Any]:
        """The envelope of requests that are the gateway's own."""
        return {CLIENT_INFO_META_KEY: {"name": "effectfence-pg", "version": "0"}, CLIENT_CAPABILITIES_META_KEY: {}}
