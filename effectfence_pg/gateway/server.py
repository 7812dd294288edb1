"""The gateway's front: what clients ask is handed to the upstream and its answers back, as they came; calls are fenced.

It is a middleware in front of an SDK server without handlers: the SDK speaks both eras of the protocol over every transport,
and no model of it touches a result.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_from_wire
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from effectfence_pg.errors import FenceError, InvalidRequest
from effectfence_pg.gateway.calls import ToolCall
from effectfence_pg.gateway.clients import caller_of, envelope_of, headers_of, wants_progress
from effectfence_pg.gateway.errors import InputRequired
from effectfence_pg.gateway.fencing import Line
from effectfence_pg.serving import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.session import ServerSession

    from effectfence_pg.gateway.catalogue import Catalogue
    from effectfence_pg.gateway.connection import Connection
    from effectfence_pg.gateway.fencing import Fencing
    from effectfence_pg.gateway.policy import Policy
    from effectfence_pg.gateway.upstream import Upstream

log = logging.getLogger("effectfence_pg.gateway")

ROOTS_CHANGED: Final = "notifications/roots/list_changed"
SESSION_KEY: Final = "effectfence/session"
OWN: Final = frozenset({"ping", "subscriptions/listen"})
GREETINGS: Final = frozenset({"initialize", "server/discover"})
CACHED: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"}
)
MODERN_ONLY: Final = ("resultType", "ttlMs", "cacheScope")
PASSED_ON: Final = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
    types.ResourceUpdatedNotification,
    types.LoggingMessageNotification,
)
MAX_SESSIONS: Final = 1000
INTERNAL_ERROR: Final = types.INTERNAL_ERROR


class Gateway:
    """One upstream behind the fence, for any number of clients.

    Args:
        policy: What is done with which tool.
        catalogue: What the upstream says of its tools.
        fencing: The calls.
        stdio: Whether there is one client only, which may be asked in the upstream's name.
    """

    def __init__(self, policy: Policy, catalogue: Catalogue, fencing: Fencing, *, stdio: bool) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._fencing = fencing
        self._stdio = stdio
        self._upstream: Upstream | None = None
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            "effectfence-pg", version=version("effectfence-pg"), on_subscriptions_listen=ListenHandler(self._bus)
        )
        self.server.middleware.append(self._serve)

    def behind(self, upstream: Upstream) -> None:
        """Take the upstream: it needs `notified` before it is made."""
        self._upstream = upstream

    async def _serve(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            await self._notification(ctx)
            return await call_next(ctx)
        if ctx.method in OWN:
            return await call_next(ctx)
        try:
            if ctx.method in GREETINGS:
                return await self._greet(ctx, call_next)
            return await self._forward(ctx)
        except FenceError as error:
            if ctx.method == "tools/call":
                return self._shaped(ctx, refused(error))
            raise MCPError(INTERNAL_ERROR, f"{error}. {error.advice}", error.as_dict()) from None

    async def _greet(self, context: ServerRequestContext[Any, Any], onward: CallNext) -> HandlerResult:
        """The upstream's capabilities, name and instructions, in our protocol versions."""
        if context.method == "initialize":
            self._ask_in_its_name(context)
        session = (await self._up().connection()).session
        answer = cast("dict[str, Any]", await onward(context))
        capabilities = session.server_capabilities or types.ServerCapabilities()
        told = capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        if context.method == "server/discover":
            # Resource updates of an upstream are not asked for by name on this side.
            told.pop("logging", None)
        answer["capabilities"] = told
        if session.instructions is not None:
            answer["instructions"] = session.instructions
        if session.server_info is not None:
            name = session.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
            if context.method == "initialize":
                answer["serverInfo"] = name
            else:
                answer["_meta"] = {**answer.get("_meta", {}), SERVER_INFO_META_KEY: name}
        return answer

    async def _forward(self, context: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        params = cast("Mapping[str, Any]", context.params or {})
        _require_plain(context.method, params)
        connection = await self._up().connection()

        async def send(given: Mapping[str, Any]) -> dict[str, Any]:
            current = await self._up().connection()
            progress = context.session.report_progress if wants_progress(params) else None
            return await current.request(context.method, given, envelope_of(params), progress)

        if context.method != "tools/call":
            answer = await send(params)
            if context.method == "tools/list":
                self._catalogue.learn(answer.get("tools", ()))
            return self._shaped(context, answer)
        call = ToolCall(params, caller_of(context), self._session_of(context))
        return self._shaped(context, await self._fencing.call(call, Line(self._name(connection), send, self._learn)))

    def _shaped(self, context: ServerRequestContext[Any, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """What the client's era of the protocol has around every result; the rest is as it came."""
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            around = {"resultType": "complete"}
            if context.method in CACHED and answer.get("resultType", "complete") == "complete":
                around |= {"ttlMs": 0, "cacheScope": "private"}
            return {**around, **answer}
        if answer.get("resultType") == "input_required":
            return refused(InputRequired(tool=str((context.params or {}).get("name", context.method))))
        return {key: value for key, value in answer.items() if key not in MODERN_ONLY}

    def _name(self, connection: Connection) -> str:
        if self._policy.server is not None:
            return self._policy.server
        info = connection.session.server_info
        return "upstream" if info is None else info.name

    def _up(self) -> Upstream:
        if self._upstream is None:
            raise RuntimeError("the gateway has no upstream yet")
        return self._upstream

    def _session_of(self, context: ServerRequestContext[Any, Any]) -> str:
        """Whose reads an effect rests on. A modern client over HTTP has no session but the one that it names."""
        if self._stdio:
            return "stdio"
        named = (context.meta or {}).get(SESSION_KEY)
        if isinstance(named, str):
            return f"named {named[:256]}"
        # An address would come again with a later request, and hand it the reads of this one.
        return f"http {headers_of(context).get('mcp-session-id') or uuid.uuid4()}"

    async def _notification(self, context: ServerRequestContext[Any, Any]) -> None:
        connected = self._up().connected
        if context.method == ROOTS_CHANGED and self._stdio and connected is not None:
            await connected.notify(ROOTS_CHANGED)
        if context.method != "notifications/initialized":
            return
        key = "stdio" if self._stdio else self._session_of(context)
        self._sessions[key] = context.session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    async def notified(self, notification: types.ServerNotification) -> None:
        """Hand a notification of the upstream to every client that can have it."""
        if not isinstance(notification, PASSED_ON):
            return
        if isinstance(notification, types.ToolListChangedNotification):
            self._fencing.background.start(self._learn())
        for session in list(self._sessions.values()):
            await session.send_notification(notification)
        params = None if notification.params is None else notification.params.model_dump(by_alias=True)
        if (event := event_from_wire(notification.method, params)) is not None:
            await self._bus.publish(event)

    async def _learn(self) -> bool:
        try:
            await (await self._up().connection()).learn()
        except (MCPError, FenceError) as error:
            log.warning("the tools of the upstream could not be listed again: %s", error)
            return False
        return True

    def _ask_in_its_name(self, context: ServerRequestContext[Any, Any]) -> None:
        """Let the upstream ask the client for what the client can do, when there is only one client to ask."""
        if not self._stdio or self._up().connected is not None:
            return
        capabilities: Mapping[str, Any] = (context.params or {}).get("capabilities") or {}
        session = context.session

        async def sample(_: Any, params: types.CreateMessageRequestParams) -> Any:
            return await _asked(session, types.CreateMessageRequest(params=params), types.CreateMessageResultWithTools)

        async def elicit(_: Any, params: types.ElicitRequestParams) -> Any:
            return await _asked(session, types.ElicitRequest(params=params), types.ElicitResult)

        async def roots(_: Any) -> Any:
            return await _asked(session, types.ListRootsRequest(), types.ListRootsResult)

        asks: dict[str, tuple[str, Any]] = {
            "sampling": ("sampling_callback", sample),
            "elicitation": ("elicitation_callback", elicit),
            "roots": ("list_roots_callback", roots),
        }
        self._up().callbacks = {name: ask for kind, (name, ask) in asks.items() if kind in capabilities}


def _require_plain(method: str, params: Mapping[str, Any]) -> None:
    """Refuse what nobody could send on: found out after the admission, it would leave an outcome unknown that is none.

    Raises:
        InvalidRequest: `_meta` is no object, or the tool has no name.
    """
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise InvalidRequest(field="_meta", reason="is no object")
    if method == "tools/call" and not isinstance(params.get("name"), str):
        raise InvalidRequest(field="name", reason="is no text")


async def _asked(session: ServerSession, request: Any, answer: type[Any]) -> Any:
    try:
        return await session.send_request(request, answer)
    except MCPError as error:
        return error.error
