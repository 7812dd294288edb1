"""Names of calls: formats over their arguments, and names derived from all of them."""

from __future__ import annotations

import re
import warnings
from string import Formatter
from typing import TYPE_CHECKING, Any, cast

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import value_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_SHORT_TEXT = 80
"""Characters of a text that is still likely to be the same when an agent writes it again."""

_WORDS = re.compile(r"[a-z0-9]+")
_SUSPICIOUS = {
    "a nonce": {"nonce", "salt", "random", "uuid", "guid", "attempt", "retry", "seed"},
    "a credential": {
        "token",
        "secret",
        "password",
        "passwd",
        "credential",
        "credentials",
        "authorization",
        "apikey",
        "bearer",
    },
    "a timestamp": {"timestamp", "now", "time", "created", "updated", "at", "ts"},
    "free text": {
        "body",
        "text",
        "message",
        "prompt",
        "description",
        "reason",
        "comment",
        "note",
        "summary",
        "content",
    },
}
_CREDENTIAL = re.compile(r"^(?:sk|pk|ghp|gho|xox[abp]|eyJ)[-_A-Za-z0-9]{12,}|^Bearer ", re.ASCII)
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
_UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", re.ASCII | re.IGNORECASE)


class DerivedIntentWarning(UserWarning):
    """An intent is derived from an argument that a retry may not repeat, so that the retry would run again."""


class _Names(Formatter):
    """Formats over plain values; attributes and keys are the same, and only text and whole numbers are names."""

    def __init__(self, field: str) -> None:
        self._field = field

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Walk a path such as `order.lines[0].id`."""
        del args
        parts = [part for part in re.split(r"[.\[\]]+", field_name) if part]
        value: Any = kwargs
        for part in parts:
            try:
                if isinstance(value, str):
                    raise TypeError("a letter of a text names nothing")  # noqa: TRY301 (the same refusal)
                value = value[int(part) if part.isdigit() else part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidRequest(field=self._field, reason=f"no argument {field_name!r} to name it by") from None
        if not isinstance(value, str | int) or isinstance(value, bool) or not parts:
            kind = type(cast("object", value)).__name__
            raise InvalidRequest(
                field=self._field, reason=f"{field_name!r} is {kind}; a name is made of text and numbers"
            )
        return value, parts[0]


def filled(field: str, template: str, values: Mapping[str, Any]) -> str:
    """A format with the arguments in it.

    Raises:
        InvalidRequest: It names something that is not there, or that makes no name: None, a list, a float.
    """
    try:
        return _Names(field).vformat(template, (), values)
    except (ValueError, KeyError) as error:
        if isinstance(error, InvalidRequest):
            raise
        raise InvalidRequest(field=field, reason=f"the format cannot be filled: {error}") from None


def derived_intent(namespace: str, tool: str, values: dict[str, Any], identity: Sequence[str] | None) -> str:
    """An intent from the namespace, the tool's name and the arguments that say what the action is.

    Warns about an argument that looks like one which a retry does not repeat.
    """
    chosen = values if identity is None else {name: values[name] for name in identity if name in values}
    for name, value in chosen.items():
        if kind := _doubtful(name, value):
            told = f"the intent of {tool} is derived from {name!r}, which looks like {kind}: a retry may not repeat it, and "
            told += "would run the tool again. Give intent=, or name what says which action it is with identity="
            warnings.warn(told, DerivedIntentWarning, stacklevel=2)
    return f"{tool}:{value_digest({'args': chosen, 'namespace': namespace, 'tool': tool})}"


def _doubtful(name: str, value: Any) -> str | None:
    words = set(_WORDS.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
    if isinstance(value, str):
        if _CREDENTIAL.search(value):
            return "a credential"
        if _TIMESTAMP.search(value):
            return "a timestamp"
        if len(value) > MAX_SHORT_TEXT or "\n" in value:
            return "free text"
    for kind, names in _SUSPICIOUS.items():
        if words & names:
            return kind
    if isinstance(value, str) and _UUID.search(value) and not words & {"id", "ids"}:
        return "a nonce"
    return None
