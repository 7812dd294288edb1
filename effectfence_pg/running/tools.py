"""A function as a fenced tool: how its call becomes a request, and how what it returned goes on record and comes back."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from effectfence_pg.errors import FenceError, InvalidRequest, ResultNotRecordable
from effectfence_pg.running.calling import code_of, name_of, require_tool, without_presets
from effectfence_pg.running.course import recorded
from effectfence_pg.running.naming import derived_intent, filled
from effectfence_pg.running.plain import plain
from effectfence_pg.running.runs import Options, Verify
from effectfence_pg.values import EffectRequest, canonical_json, parse_request, to_json_value

if TYPE_CHECKING:
    from effectfence_pg.running.proof import NoEffect

Named = str | Callable[..., Any] | None
"""A name for each call: a format over the bound arguments, or a callable that takes what the function takes."""

DECLARED: Final = "__effectfence__"
_CONFIG: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What `fenced` was told."""

    intent: Named = None
    domain: Named = None
    identity: tuple[str, ...] | None = None
    wait_seconds: float | None = None
    lease_seconds: float | None = None
    on_lease_expiry: str | None = None
    no_effect: NoEffect = ()
    verify: Verify | None = None
    occurrence: int | str | Callable[..., Any] | None = None
    branch: Named = None
    agent: Named = None

    def changed(self, given: dict[str, Any]) -> Declaration:
        """The same with what is given."""
        return replace(self, **given)


class Tool:
    """One function and its declaration.

    Raises:
        TypeError: A generator function: its effects happen when nobody keeps a lease any more. A lambda without an intent:
            all of them have the same name.
    """

    def __init__(self, function: Callable[..., Any], declaration: Declaration) -> None:
        require_tool(function, awaits=True)
        self.function = function
        self.declaration = declaration
        self.name = name_of(function).rpartition("<locals>.")[2]
        if self.name == "<lambda>" and declaration.intent is None:
            msg = "a lambda has no name to derive an intent from: give intent=, or fence a function that has one"
            raise TypeError(msg)
        self.signature = inspect.signature(without_presets(function))
        names = list(self.signature.parameters)
        self._owner = names[0] if names and names[0] in {"self", "cls"} and "." in self.name else None

    @property
    def is_async(self) -> bool:
        """Whether it is to be awaited."""
        return inspect.iscoroutinefunction(code_of(self.function))

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        """Reads and writes the annotated return type; None when there is none that pydantic knows."""
        try:
            hints = get_type_hints(code_of(self.function), include_extras=True)
        except (NameError, TypeError):
            return None
        kind = hints.get("return", Any)
        if kind is Any:
            return None
        try:
            return TypeAdapter(kind, config=_CONFIG)
        except PydanticSchemaGenerationError:
            return None
        except PydanticUserError:
            # A model brings a configuration of its own.
            return TypeAdapter(kind)

    def request(self, namespace: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EffectRequest:
        """The request of one call; its arguments are copied here, before the tool can change them.

        Raises:
            InvalidRequest: An argument has no JSON form, or a name cannot be made from the arguments.
            TypeError: The arguments do not fit the function.
        """
        told = self.declaration
        bound = self._call(args, kwargs)
        bound.apply_defaults()
        values = {name: plain(value, f"args.{name}") for name, value in bound.arguments.items() if name != self._owner}

        def named(field: str, given: Any) -> Any:
            if callable(given):
                return given(*args, **kwargs)
            return filled(field, given, values) if isinstance(given, str) else given

        intent = named("intent", told.intent)
        if told.intent is None:
            intent = derived_intent(namespace, self.name, values, told.identity)
        occurrence = named("occurrence", told.occurrence)
        if occurrence is not None:
            if not isinstance(occurrence, int | str) or isinstance(occurrence, bool):
                raise InvalidRequest(field="occurrence", reason="is neither a number nor a text")
            intent = f"{intent}#{occurrence}"
        domain, agent = named("domain", told.domain), named("agent", told.agent)
        return parse_request(
            {
                "intent": intent,
                "domain": intent if told.domain is None else domain,
                "tool": self.name,
                "agent": _process() if told.agent is None else agent,
                "args": values,
                "identity": None if told.identity is None else list(told.identity),
                "lease_seconds": None if told.lease_seconds is None else float(told.lease_seconds),
                "on_lease_expiry": told.on_lease_expiry,
                "branch": named("branch", told.branch),
            }
        )

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """A call with what a partial presets, which says what the action is as well."""
        function = self.function
        while isinstance(function, partial):
            args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
        return self.signature.bind(*args, **kwargs)

    @cached_property
    def options(self) -> Options:
        """What a run of it is told."""
        told = self.declaration
        return Options(
            wait_seconds=told.wait_seconds, no_effect=told.no_effect, verify=told.verify, encode=self._encoded
        )

    def _encoded(self, result: Any) -> Any:
        """The JSON value that goes on record.

        Raises:
            ResultNotRecordable: It has none from which an equal value could be had again.
        """
        if isinstance(result, Iterator | AsyncIterator):
            raise ResultNotRecordable(intent=self.name, reason="an iterator is read once")
        if self._adapter is not None:
            try:
                value = to_json_value(self._adapter.dump_python(result, mode="json", warnings="none"), field="result")
                if _same(self._adapter.validate_json(canonical_json(value)), result):
                    return value
            except Exception:  # noqa: BLE001, S110 (serializers and comparisons are the caller's; the next form is tried)
                pass
        try:
            return to_json_value(result, field="result")
        except FenceError as error:
            raise ResultNotRecordable(intent=self.name, reason=str(error)) from error

    def decoded(self, certificate: Any) -> Any:
        """The result on record as the annotated type; as plain JSON when it was no such thing.

        Raises:
            ResultNotReplayable: It could not be recorded.
        """
        value = recorded(certificate)
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_json(canonical_json(value))
        except ValidationError:
            return value


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _process() -> str:
    """Who acts when nobody says: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"
