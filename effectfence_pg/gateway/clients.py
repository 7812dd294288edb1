"""What a client says of itself with a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY

from effectfence_pg.gateway.calls import UNNAMED, Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext


def headers_of(context: ServerRequestContext[Any, Any]) -> Mapping[str, str]:
    """The headers of its request; none over stdio."""
    return getattr(context.request, "headers", None) or {}


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """Its name and version."""
    params = context.session.client_params
    if params is None:
        return Caller(headers=headers_of(context))
    return Caller(params.client_info.name or UNNAMED, params.client_info.version, headers_of(context))


def wants_progress(params: Mapping[str, Any]) -> bool:
    """Whether it wants to hear how far a request is."""
    return "progressToken" in (params.get("_meta") or {})


def envelope_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """What the client says of itself; an older client can answer no question within a result."""
    meta: Mapping[str, Any] = params.get("_meta") or {}
    return {
        CLIENT_INFO_META_KEY: meta.get(CLIENT_INFO_META_KEY) or {"name": UNNAMED, "version": "0"},
        CLIENT_CAPABILITIES_META_KEY: meta.get(CLIENT_CAPABILITIES_META_KEY) or {},
    }
