"""What a schema says about arguments: what is certain, by its path, and nothing else, whatever the schema."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest

from effectfence_pg.gateway.shapes import Shape

ORDER = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string"},
        "cents": {"type": "integer", "minimum": 1, "default": 4900},
        "unit": {"enum": ["usd", "eur"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["order_id"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}
FAULTS = {
    "missing": ({}, ("arguments.order_id", "is missing")),
    "unknown": ({"order_id": "1", "cent": 1}, ("arguments.cent", "is no argument of it")),
    "type": ({"order_id": "1", "cents": "4900"}, ("arguments.cents", "'4900' is not of type 'integer'")),
    "bound": ({"order_id": "1", "cents": 0}, ("arguments.cents", "0 is less than the minimum of 1")),
    "enum": ({"order_id": "1", "unit": "gbp"}, ("arguments.unit", "'gbp' is not one of ['usd', 'eur']")),
    "deep": ({"order_id": "1", "lines": [{"sku": "a"}, {}]}, ("arguments.lines[1].sku", "is missing")),
}


@pytest.mark.parametrize(("arguments", "fault"), FAULTS.values(), ids=FAULTS)
def test_what_a_tool_does_not_take_is_named_by_its_path(arguments: dict[str, Any], fault: tuple[str, str]) -> None:
    assert Shape(ORDER).fault(arguments) == fault


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema"]
)
def test_it_is_read_in_the_dialect_that_it_names(dialect: str) -> None:
    shape = Shape(
        {
            "$schema": dialect,
            "definitions": {"n": {"type": "integer"}},
            "properties": {"x": {"$ref": "#/definitions/n"}},
        }
    )
    assert shape.fault({"x": 1.0}) is None
    assert shape.fault({"x": "1"}) == ("arguments.x", "'1' is not of type 'integer'")


def test_a_long_value_is_cut_and_what_is_allowed_is_still_said() -> None:
    fault = Shape(ORDER).fault({"order_id": "1", "cents": "9" * 100_000})
    assert fault is not None
    assert len(fault[1]) < 250
    assert fault[1].endswith("is not of type 'integer'")


def _of(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"]}


BOMB = {
    "properties": {"x": {"$ref": "#/$defs/d0"}},
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}},
}
SAY_NOTHING = {
    "none": None,
    "a text": "object",
    "true": True,
    "no schema": {"type": 7, "required": "x"},
    "an unknown dialect": {"$schema": "https://example.org/mine", "required": ["y"]},
    "no dialect": {"$schema": 7, "required": ["y"]},
    "a remote reference": _of(**{"$ref": "https://example.org/schema.json"}),
    "a reference to nothing": _of(**{"$ref": "#/$defs/nothing"}),
    "a reference to itself": {"$ref": "#"},
    "a pattern that runs away": _of(pattern="^(a+)+$"),
    "a pattern that is none": _of(pattern="("),
    "names by patterns": {"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False},
    "not a pattern": _of(**{"not": {"pattern": "^b"}}),
    "one of two patterns": _of(oneOf=[{"pattern": "^a"}, {"pattern": "^b"}]),
    "a huge one": _of(enum=[[n] for n in range(10_000)]),
    "one that grows": BOMB,
    "cents of a dollar": {"properties": {"price": {"multipleOf": 0.01}}},
    "a format": _of(format="uuid"),
}


@pytest.mark.parametrize("schema", SAY_NOTHING.values(), ids=SAY_NOTHING)
def test_a_schema_that_cannot_be_judged_says_nothing_soon_and_fetches_nothing(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is fetched")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    started = time.monotonic()
    shape = Shape(schema)
    for _ in range(2):
        assert shape.fault({"x": "a" * 40 + "b", "price": 19.99}) is None
    assert time.monotonic() - started < 5
    assert shape.defaults() == {}


def test_what_a_pattern_stands_beside_is_judged_all_the_same() -> None:
    shape = Shape(_of(type="string", pattern="^(a+)+$"))
    assert shape.fault({"x": 7}) == ("arguments.x", "7 is not of type 'string'")
    assert shape.fault({}) == ("arguments.x", "is missing")


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(ORDER)
    shape.fault({})
    monkeypatch.setattr("effectfence_pg.gateway.shapes._judge", None)
    assert shape.fault({}) == ("arguments.order_id", "is missing")


def test_defaults_are_those_that_the_schema_says() -> None:
    assert Shape(ORDER).defaults() == {"cents": 4900}
