from __future__ import annotations

import dataclasses
import enum
import json
from collections import OrderedDict, UserDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import canonical_json, read_json, to_json_value, value_digest


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    NAMED = "named"


class Text(str):
    __slots__ = ()


class Order(BaseModel):
    id: str
    lines: tuple[int, ...] = ()
    at: Any = None


@dataclasses.dataclass
class Charge:
    order: Order
    currency: str


Point = namedtuple("Point", "x y")  # noqa: PYI024


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (0.0001, "0.0001"),
        (0.00001, "0.00001"),
        (1.5e-5, "0.000015"),
        (-9.999e-5, "-0.00009999"),
        (1e-6, "1e-6"),
        (-1.25e-7, "-1.25e-7"),
        (1e-10, "1e-10"),
        (123456789012345.6, "123456789012345.6"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (0.1, "0.1"),
    ],
)
def test_floats_are_written_as_the_original_writes_them(number: float, text: str) -> None:
    assert canonical_json(number) == text
    assert canonical_json({"a": [number, "e-06 1e-06"]}) == f'{{"a":[{text},"e-06 1e-06"]}}'


def test_text_that_looks_like_a_small_float_is_left_alone() -> None:
    value = {"1e-06": '\\"1e-06', "k\\": "1e-05", "n": 1e-06, "s": '"', "z": [1e-05, "\\\\"]}
    text = canonical_json(value)
    assert json.loads(text) == value
    assert text == r'{"1e-06":"\\\"1e-06","k\\":"1e-05","n":1e-6,"s":"\"","z":[0.00001,"\\\\"]}'


def test_integers_are_exact_whatever_their_size() -> None:
    for number in (2**53 + 1, 2**64, -(2**200), 10**4000):
        assert read_json(canonical_json(number)) == number


def test_keys_are_sorted_by_code_point_and_not_by_utf16_unit() -> None:
    assert canonical_json({"\U0001f600": 1, "\ue000": 2, "z": 3}) == '{"z":3,"\ue000":2,"\U0001f600":1}'


def test_only_what_must_be_escaped_is_escaped() -> None:
    assert canonical_json('/\x7f\u2028é"\\\x00\x1f\n') == '"/\x7f\u2028é\\"\\\\\\u0000\\u001f\\n"'


@pytest.mark.parametrize(
    ("given", "copy"),
    [
        (Order(id="1", lines=(1, 2)), {"id": "1", "lines": [1, 2], "at": None}),
        (Charge(Order(id="1"), "usd"), {"order": {"id": "1", "lines": [], "at": None}, "currency": "usd"}),
        ({"c": Colour.RED, "l": Level.HIGH, "p": Plain.NAMED}, {"c": "red", "l": 3, "p": "named"}),
        ({Colour.RED: 1, Text("k"): Text("v")}, {"red": 1, "k": "v"}),
        (Point(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (UserDict(a=1), {"a": 1}),
        ([True, None, 1, 1.0, "x"], [True, None, 1, 1.0, "x"]),
    ],
)
def test_models_dataclasses_enums_and_tuples_become_plain_values(given: Any, copy: Any) -> None:
    made = to_json_value(given, field="args")
    assert made == copy
    assert json.loads(canonical_json(made)) == copy


@pytest.mark.parametrize("given", [{Colour.RED: Text("v")}, [Level.HIGH], {"a": Text("x")}])
def test_no_subclass_survives_the_copy(given: Any) -> None:
    def types(value: Any) -> set[type]:
        if isinstance(value, dict):
            return {dict}.union(*(types(part) for item in value.items() for part in item))
        if isinstance(value, list):
            return {list}.union(*(types(part) for part in value))
        return {type(value)}

    assert types(to_json_value(given, field="args")) <= {dict, list, str, int, float, bool, type(None)}


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        ({"items": [0, 1, 2, {"when": datetime(2026, 1, 1, tzinfo=UTC)}]}, "args.items[3].when", "datetime"),
        ({"tags": {"a", "b"}}, "args.tags", "set"),
        ({"raw": b"x"}, "args.raw", "bytes"),
        ({"sum": Decimal("1.10")}, "args.sum", "Decimal"),
        ({"id": UUID(int=1)}, "args.id", "UUID"),
        ({"f": frozenset()}, "args.f", "frozenset"),
        ({"it": iter([])}, "args.it", "list_iterator"),
        ({"o": object()}, "args.o", "object"),
        ({"t": Order}, "args.t", "ModelMetaclass"),
        ({"m": Order(id="1", at=SecretStr("x"))}, "args.m.at", "SecretStr"),
        ({"d": Charge(Order(id="1", at={1}), "usd")}, "args.d.order.at", "set"),
        ({1: "x"}, "args", "key is of type int"),
        ({"a": {None: 1}}, "args.a", "key is of type NoneType"),
        ({"x": float("nan")}, "args.x", "nan"),
        ([float("inf")], "args[0]", "inf"),
        ([[-float("inf")]], "args[0][0]", "-inf"),
        ({"s": "\ud800"}, "args.s", "lone surrogate"),
        ({"\udfff": 1}, "args", "lone surrogate"),
        ({"a b": {"1": b""}}, 'args["a b"]["1"]', "bytes"),
        ({"n": 10**5000}, "args.n", "bits"),
        (b"x", "args", "bytes"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_its_path(given: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        to_json_value(given, field="args")
    assert refused.value.field == path
    assert reason in refused.value.reason


def test_a_null_character_is_refused_where_it_is_asked_for() -> None:
    assert to_json_value({"\0": "\0"}, field="result") == {"\0": "\0"}
    with pytest.raises(InvalidRequest, match=r"^args\.a: contains U\+0000"):
        to_json_value({"a": "\0"}, field="args", nul=False)
    with pytest.raises(InvalidRequest, match=r"^args: contains U\+0000"):
        to_json_value({"\0": 1}, field="args", nul=False)


def test_127_levels_are_taken_and_128_are_not() -> None:
    assert to_json_value(nested(127), field="args") == nested(127)
    with pytest.raises(InvalidRequest, match="127 levels"):
        to_json_value(nested(128), field="args")


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    model = Order(id="1")
    model.at = model
    for endless in (cycle, model):
        with pytest.raises(InvalidRequest):
            to_json_value(endless, field="args")


def test_a_path_through_long_keys_stays_short() -> None:
    with pytest.raises(InvalidRequest) as refused:
        to_json_value({"k" * 1_000_000: b""}, field="args")
    assert len(str(refused.value)) < 200


def test_the_copy_shares_nothing_with_the_original() -> None:
    given = {"a": [1, {"b": 2}]}
    copy = to_json_value(given, field="args")
    given["a"].append(3)
    given["a"][1]["b"] = 9
    assert copy == {"a": [1, {"b": 2}]}


def test_reading_keeps_the_last_of_duplicate_keys_unmerged() -> None:
    assert read_json('{"a":{"x":1},"b":2,"a":{"y":2}}') == {"a": {"y": 2}, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        "{",
        "",
        "[" * 100_000,
        b"\xff",
        "'a'",
        "1" * 5000,
        "[1,]",
        '"\\ud800"',
        '"\udcff"',
    ],
)
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_json(text)
    assert refused.value.field == "json"


@pytest.mark.parametrize(
    "same",
    [
        ("1", "1.0", "1e0", "10e-1"),
        ("0", "-0.0", "0.0", "-0"),
        ("1e22", "10000000000000000000000", "1E+22"),
        ('{"a":1,"b":2}', '{"b":2.0,"a":1}'),
        ('"\\u00e9"', '"é"'),
        ("[0.1]", "[1e-1]"),
    ],
)
def test_f05_one_value_has_one_digest(same: tuple[str, ...]) -> None:
    assert len({value_digest(read_json(text)) for text in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (2**53, 2**53 + 1),
        (float(2**53), 2**53 + 1),
        (1, True),
        (0, False),
        (1, "1"),
        (None, "null"),
        ([], {}),
        (0.1, 0.1000000000000001),
        ("é", "e\u0301"),
        ({"a": None}, {}),
    ],
)
def test_f05_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert value_digest(one) != value_digest(other)
