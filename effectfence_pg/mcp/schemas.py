"""JSON schemas of the values, in the plain form that every client of the protocol understands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import WithJsonSchema

if TYPE_CHECKING:
    from pydantic import BaseModel

ANY_TYPE: Final = ["object", "array", "string", "number", "boolean", "null"]
Json = Annotated[Any, WithJsonSchema({"type": ANY_TYPE})]
"""Any JSON value, with its types written out: a schema without a type is read by some clients as text."""

_ATTRIBUTE: Final = re.compile(r"^    (?:    )?(\w+): (\S.*)$", re.MULTILINE)
_TYPED: Final = ("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const")
_MAPS: Final = ("properties", "patternProperties")


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model: no references, every property typed, an optional value as a list of types.

    Properties are described as the docstring of the model describes its attributes, unless they say so themselves.
    """
    schema = model.model_json_schema()
    plain = _plain(schema, schema.pop("$defs", {}), top=True)
    told = {name: words for base in model.__mro__[::-1] for name, words in _ATTRIBUTE.findall(base.__doc__ or "")}
    for name, part in plain.get("properties", {}).items():
        if name in told:
            part.setdefault("description", told[name])
    return plain


def _plain(node: dict[str, Any], definitions: dict[str, Any], *, top: bool = False) -> dict[str, Any]:
    if "$ref" in node:
        found = {**definitions[node["$ref"].rpartition("/")[2]]}
        found.pop("description", None)  # written for programmers, and longer than the rest
        node = {**found, **{key: value for key, value in node.items() if key != "$ref"}}
    plain: dict[str, Any] = {}
    for key, value in node.items():
        if key in {"title", "default"} and not top:
            if key == "default" and value is not None:
                plain[key] = value
        elif key in _MAPS:
            plain[key] = {name: _typed(_plain(part, definitions)) for name, part in value.items()}
        else:
            plain[key] = _part(value, definitions)
    return _optional(plain)


def _part(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return _typed(_plain(cast("dict[str, Any]", value), definitions))
    if isinstance(value, list):
        return [_part(item, definitions) for item in cast("list[Any]", value)]
    return value


def _typed(node: dict[str, Any]) -> dict[str, Any]:
    return node if any(key in node for key in _TYPED) else {**node, "type": ANY_TYPE}


def _optional(node: dict[str, Any]) -> dict[str, Any]:
    """`anyOf: [X, null]` as X with one type more."""
    choices: list[dict[str, Any]] = node.get("anyOf", [])
    others = [choice for choice in choices if choice != {"type": "null"}]
    if len(others) != 1 or len(choices) != len(others) + 1 or not isinstance(others[0].get("type"), str):
        return node
    other = others[0]
    merged = {key: value for key, value in node.items() if key != "anyOf"} | other | {"type": [other["type"], "null"]}
    if "enum" in other:
        merged["enum"] = [*other["enum"], None]
    return merged
