"""One call of a tool, as an effect: who calls, in which tenant, and what the action is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway.errors import InvalidArguments
from effectfence_pg.gateway.formats import fields_of
from effectfence_pg.running.naming import filled
from effectfence_pg.values import EffectRequest, ReadSetEntry, canonical_json, parse_request, to_json_value
from effectfence_pg.values.canonical import value_digest

if TYPE_CHECKING:
    from effectfence_pg.gateway.policy import Policy, Rule

UNNAMED: Final = "mcp-client"
"""The agent, when a client does not say what it is called."""
SHOWN_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of the client: its name and version, and the headers of its request."""

    name: str = UNNAMED
    version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as it came, and what comes of it by the policy."""

    params: Mapping[str, Any]
    caller: Caller
    session: str
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What arguments are that are not given, by the tool's schema. It is never sent: the upstream knows."""

    @property
    def tool(self) -> str:
        """The tool's name."""
        return str(self.params.get("name", ""))

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments; none are an empty object.

        Raises:
            InvalidRequest: They are no object.
        """
        found = self.params.get("arguments")
        if found is not None and not isinstance(found, Mapping):
            raise InvalidRequest(field="arguments", reason="is no object")
        return cast("Mapping[str, Any]", found or {})

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the client says beside them."""
        found = self.params.get("_meta")
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}

    def key(self, policy: Policy) -> str | None:
        """The client's own name of the action.

        Raises:
            InvalidRequest: It is no text.
        """
        for name in policy.client_keys:
            value = self.meta.get(name)
            if value is not None:
                if not isinstance(value, str) or not value:
                    raise InvalidRequest(field=f"_meta.{name}", reason="is no text")
                return value
        return None

    def named(self, what: str, template: str) -> str:
        """A tenant or an agent: fixed, or from what the client says.

        Raises:
            InvalidRequest: The client does not say it.
        """
        client = {"name": self.caller.name, "version": self.caller.version}
        return filled(what, template, {"client": client, "meta": self.meta, "header": self.caller.headers})


def intent_of(call: ToolCall, rule: Rule, policy: Policy, server: str) -> str:
    """What the action is called: by the rule, by the client, else by server, tool and all arguments.

    The rule first: whoever calls could make a second action of a charge, by a key of its own, as often as it likes. The parts
    stand in a JSON list, so that no two actions share a name however their parts are spelled.
    """
    if rule.intent is not None:
        return _named_by("intent", rule.intent, call)
    if (key := call.key(policy)) is not None:
        return canonical_json([server, call.tool, {"key": _short(key)}])
    arguments = to_json_value(call.arguments, field="arguments")
    return canonical_json([server, call.tool, value_digest(arguments)])


def _named_by(what: str, template: str, call: ToolCall) -> str:
    for name, *_ in fields_of(template):
        _needed(call, name, None)
    return filled(what, template, {**call.defaults, **call.arguments})


def _needed(call: ToolCall, name: str, missing: Any = ...) -> Any:
    """An argument by which the policy tells calls apart, as it was given or as it is when it is not."""
    value = call.arguments.get(name, call.defaults.get(name, ...))
    if value is ... or value is missing:
        reason = "is needed here: the policy identifies this call by it"
        raise InvalidArguments(tool=call.tool, field=f"arguments.{name}", reason=reason)
    return value


def _short(key: str) -> str:
    return key if len(key.encode()) <= SHOWN_CHARACTERS else value_digest(key)


def domain_of(call: ToolCall, rule: Rule, policy: Policy, server: str) -> str:
    """What the action, or the read, is about. One domain for each tool would make every parallel call collide."""
    if rule.domain is not None:
        return _named_by("domain", rule.domain, call)
    return intent_of(call, rule, policy, server)


def request_of(
    call: ToolCall, rule: Rule, policy: Policy, server: str, read_set: tuple[ReadSetEntry, ...]
) -> EffectRequest:
    """The attempt that this call is.

    Raises:
        InvalidArguments: What names or identifies it is neither given nor has a default.
        InvalidRequest: A name cannot be filled in, or an argument is no plain JSON.
    """
    intent = intent_of(call, rule, policy, server)
    return parse_request(
        {
            "intent": intent,
            "domain": intent if rule.domain is None else _named_by("domain", rule.domain, call),
            "tool": call.tool,
            "agent": call.named("agent", policy.agent),
            "args": {**call.arguments, **{name: _needed(call, name) for name in rule.identity or ()}},
            "identity": rule.identity,
            "lease_seconds": policy.setting(rule, "lease_seconds"),
            "on_lease_expiry": policy.setting(rule, "on_lease_expiry").value,
            "read_set": read_set,
        }
    )
