r"""Canonical JSON: one text for one value, in every process, so that digests mean the same everywhere.

The byte rules are those of the original EffectFence certificates: compact, keys sorted by Unicode code point at every
level, only `"`, `\` and the control characters escaped, integers exact, floats as the shortest digits that read back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from pydantic import BaseModel
from pydantic_core import from_json

from effectfence_pg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
"""A plain JSON value."""

MAX_NESTING = 127
"""Levels of objects and arrays: the limit of the original's reader."""

MAX_INT_BITS = 14_280
"""Bits of an integer. Python refuses to write or read more than 4,300 decimal digits, which this stays below."""

_MAX_PART = 64  # Characters of one key in an error's path; a key may be of any length.

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode

# Strings are matched to be stepped over: only a number may be rewritten.
_SMALL_FLOAT = re.compile(r"\de-0")
_STRING_OR_SMALL_FLOAT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(\d)(?:\.(\d+))?e-0(\d)')


class _RefusedError(Exception):
    """A part that is no JSON value. The path is gathered innermost first, only when something is refused."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path: list[str] = []


def to_json_value(value: object, *, field: str, nul: bool = True) -> JsonValue:
    """Copy `value` deeply, by value, into dict, list, str, int, float, bool and None.

    Accepts mappings with str keys, lists, tuples (as lists), pydantic models, dataclass instances and Enums of str or
    int. Everything else is refused, never turned into text.

    Args:
        value: What to copy.
        field: The name that errors begin their path with.
        nul: Whether strings may contain U+0000.

    Raises:
        InvalidRequest: Another type, NaN, Infinity, a lone surrogate, more than 127 levels (a cycle included), a
            refused U+0000, a container that fails when it is read. Its `field` is the path, such as `args.items[3].when`.
    """
    try:
        return _copied(value, MAX_NESTING, nul)
    except _RefusedError as refused:
        path = field + "".join(
            part if len(part) <= _MAX_PART else f"{part[:_MAX_PART]}..." for part in refused.path[::-1]
        )
        raise InvalidRequest(field=path, reason=refused.reason) from None
    except RecursionError:
        raise InvalidRequest(field=field, reason="nested without end") from None
    except Exception as error:  # noqa: BLE001 (containers of the caller's may raise anything when they are read)
        raise InvalidRequest(field=field, reason=f"reading it raised {type(error).__name__}") from None


def _copied(value: Any, levels: int, nul: bool) -> JsonValue:  # noqa: PLR0911 (one case for each plain type)
    kind = cast("type[object]", type(value))
    if kind is str:
        return _checked_text(value, nul)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _checked_int(value)
    if kind is float:
        return _checked_float(value)
    if kind is dict:
        return _copied_items(value.items(), levels, nul)
    if kind is list or kind is tuple:
        return _copied_list(value, levels, nul)
    return _copied(_plain(value), levels, nul)


def _plain(value: object) -> object:  # noqa: PLR0911 (one case for each accepted kind)
    """Reduce an accepted subclass, model, dataclass or Enum by one step towards a plain type."""
    if isinstance(value, Enum) and isinstance(value.value, str | int):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, list | tuple):
        return list(cast("Iterable[object]", value))
    if isinstance(value, BaseModel):
        try:
            return value.model_dump()
        except Exception as error:  # noqa: BLE001 (a serializer of the caller's may raise anything)
            raise _RefusedError(f"the model cannot be dumped: {error}") from None
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value).items())
    raise _RefusedError(f"{type(value).__name__} is no JSON type")


def _copied_items(items: Iterable[tuple[Any, Any]], levels: int, nul: bool) -> dict[str, JsonValue]:
    if not levels:
        _refuse_nesting()
    copy: dict[str, JsonValue] = {}
    for key, item in items:
        name = key if type(key) is str and key.isascii() and "\0" not in key else _checked_key(key, nul)
        try:
            copy[name] = _copied(item, levels - 1, nul)
        except _RefusedError as refused:
            refused.path.append(f".{name}" if name.isidentifier() else f"[{quoted(name)}]")
            raise
    return copy


def _copied_list(items: Iterable[Any], levels: int, nul: bool) -> list[JsonValue]:
    if not levels:
        _refuse_nesting()
    copy: list[JsonValue] = []
    for item in items:
        try:
            copy.append(_copied(item, levels - 1, nul))
        except _RefusedError as refused:
            refused.path.append(f"[{len(copy)}]")
            raise
    return copy


def _refuse_nesting() -> NoReturn:
    raise _RefusedError(f"nested deeper than {MAX_NESTING} levels")


def _checked_key(key: object, nul: bool) -> str:
    plain = _plain(key) if isinstance(key, str) and type(key) is not str else key
    if type(plain) is not str:
        raise _RefusedError(f"a key is of type {type(key).__name__}, not str")
    return _checked_text(plain, nul)


def _checked_text(text: str, nul: bool) -> str:
    if not nul and "\0" in text:
        raise _RefusedError("contains U+0000")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _RefusedError("contains a lone surrogate") from None
    return text


def _checked_int(number: int) -> int:
    if number.bit_length() > MAX_INT_BITS:
        raise _RefusedError(f"an integer of more than {MAX_INT_BITS} bits")
    return number


def _checked_float(number: float) -> float:
    if not math.isfinite(number):
        raise _RefusedError(f"{number} is no JSON number")
    return number


def canonical_json(value: JsonValue) -> str:
    """Write a plain JSON value, such as `to_json_value` returns, by the certificate's byte rules.

    Raises:
        ValueError: NaN or Infinity.
    """
    text = _ENCODE(value)
    # The C encoder follows the rules but for one thing: it writes 1e-06 where they say 1e-6, and 1e-05 for 0.00001.
    if "e-0" in text and _SMALL_FLOAT.search(text):
        return _STRING_OR_SMALL_FLOAT.sub(_small_float, text)
    return text


def _small_float(match: re.Match[str]) -> str:
    first, rest, exponent = match.groups()
    if first is None:
        return match.group()
    digits = first + (rest or "")
    if exponent == "5":
        return f"0.0000{digits}"
    return f"{first}.{rest}e-{exponent}" if rest else f"{first}e-{exponent}"


def quoted(text: str) -> str:
    """Write one string by the same rules."""
    return encode_basestring(text)


def has_float(value: JsonValue) -> bool:
    """Tell whether a plain JSON value holds a float anywhere."""
    if isinstance(value, dict):
        return any(map(has_float, value.values()))
    if isinstance(value, list):
        return any(map(has_float, value))
    return isinstance(value, float)


def by_value(value: JsonValue) -> JsonValue:
    """Replace every float that is a whole number by that integer, so that 1, 1.0 and 1e0 are one, and -0.0 is 0."""
    if isinstance(value, dict):
        return {key: by_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [by_value(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def value_digest(value: JsonValue) -> str:
    """Return the lower hex SHA-256 of the value's canonical text, with numbers compared by value."""
    return sha256(canonical_json(by_value(value)).encode()).hexdigest()


def read_json(text: str | bytes) -> JsonValue:
    """Read JSON text: doubles correctly rounded, integers exact, the last of duplicate keys, replaced and not merged.

    Raises:
        InvalidRequest: No JSON, NaN or Infinity, a lone surrogate, or nested too deeply to read. Its `field` is `json`.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(field="json", reason=str(error)) from None
    except TypeError:
        # The reader takes a str that has no UTF-8, such as an argument of a command in another encoding, for no str at all.
        if not isinstance(text, str):
            raise
        raise InvalidRequest(field="json", reason="contains a lone surrogate") from None
