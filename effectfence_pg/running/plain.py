"""Arguments of Python functions as JSON values: the types that people annotate, each in one form, never a repr."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import canonical_json, to_json_value
from effectfence_pg.values.canonical import MAX_NESTING


def plain(value: Any, field: str, levels: int = MAX_NESTING) -> Any:
    """Copy a value deeply into JSON.

    Text: UUID, date, time, datetime (ISO 8601, in the zone it has), Decimal, path. bytes: base64. Enum: its value. Sets: a list
    in the order of the elements' canonical text, which is the same in every process. Models and dataclasses: their fields.

    Raises:
        InvalidRequest: Anything else; its `field` is the path.
    """
    if levels <= 0:
        raise InvalidRequest(field=field, reason=f"nested deeper than {MAX_NESTING} levels")
    simple = _simple(value)
    if simple is not None:
        return to_json_value(simple, field=field)
    if isinstance(value, BaseModel):
        # By fields and not by a dump, which a serializer of the model may lead anywhere.
        value = {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
    elif is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in fields(value)}
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_key(key, field): plain(item, f"{field}.{key}", levels - 1) for key, item in items}
    if isinstance(value, AbstractSet):
        members = [plain(item, f"{field}{{}}", levels - 1) for item in cast("AbstractSet[Any]", value)]
        return sorted(members, key=canonical_json)
    if isinstance(value, list | tuple):
        members = cast("list[Any]", value)
        return [plain(item, f"{field}[{at}]", levels - 1) for at, item in enumerate(members)]
    return to_json_value(value, field=field)


def _key(key: Any, field: str) -> str:
    found = key.value if isinstance(key, Enum) else key
    if not isinstance(found, str):
        raise InvalidRequest(field=field, reason=f"a key is of type {type(key).__name__}, not str")
    return found


def _simple(value: Any) -> Any:
    """The JSON value of what has no parts; None when it has, or is none of these."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str | int | float) else None
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    return None
