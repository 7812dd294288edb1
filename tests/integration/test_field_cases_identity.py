"""Cases from the field about what an action is. The tools are counted by a ledger that the fence knows nothing of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest

from effectfence_pg import (
    IntentMismatch,
    InvalidRequest,
    Replay,
)
from tests.support.witness import Witness
from tests.support.world import World, perform


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


@dataclass
class Charge:
    currency: str = "eur"
    lines: list[dict[str, int]] = field(default_factory=lambda: [{"cents": 4900}])


class ChargeModel(pydantic.BaseModel):
    currency: str = "eur"
    lines: list[dict[str, int]] = [{"cents": 4900}]


@pytest.mark.parametrize("kind", [dict, Charge, ChargeModel])
def test_f03_a_tool_that_edits_its_own_arguments_is_replayed_with_those_of_admission(
    world: World, ledger: Witness, kind: Any
) -> None:
    def make() -> Any:
        return {"currency": "eur", "lines": [{"cents": 4900}]} if kind is dict else kind()

    def tool(args: Any) -> str:
        if kind is dict:
            args["currency"], args["sent"] = "EUR", True
            args["lines"].append({"cents": 1})
        else:
            args.currency = "EUR"
            args.lines.append({"cents": 1})
        return "done"

    assert perform(world, ledger, tool, args=make()) == "done"
    assert perform(world, ledger, tool, args=make()) == "done"
    assert ledger.count() == 1
    replay = world.fence.prepare(world.request(args=make()))
    assert isinstance(replay, Replay)
    assert replay.certificate.args == {"currency": "eur", "lines": [{"cents": 4900}]}
    assert len(world.rows()["effects"]) == 1


ASK = """
import json, sys
from effectfence_pg import Fence, FenceError, Replay
url, namespace, request = sys.argv[1], sys.argv[2], sys.argv[3]
# The args are built here, in the order in which they were sent, and their sets in the order of this process.
request = json.loads(request)
if "tags" in request["args"]:
    request["args"]["tags"] = set(request["args"]["tags"])
with Fence(url, namespace=namespace) as fence:
    try:
        verdict = fence.prepare(request)
    except FenceError as error:
        print(json.dumps([error.code, error.facts().get("field")]))
    else:
        print(json.dumps(["replay" if isinstance(verdict, Replay) else "fresh", None]))
"""


def ask(world: World, request: dict[str, Any], seed: int) -> list[Any]:
    """What another process with another hash seed is told."""
    url = world.engine.url.render_as_string(hide_password=False)
    answer = subprocess.run(
        [sys.executable, "-c", ASK, url, world.namespace, json.dumps(request)],
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(answer.stdout)


def test_f04_another_process_with_another_order_of_keys_means_the_same(world: World) -> None:
    args = {name: {"b": n, "a": [n, {"y": 1, "x": 2}]} for n, name in enumerate("zebra")}
    world.commit(args=args)
    shuffled = {name: dict(reversed(value.items())) for name, value in reversed(args.items())}
    request = {"intent": "charge:1", "domain": "of:charge:1", "tool": "charge", "agent": "a", "args": shuffled}
    assert ask(world, request, seed=1) == ["replay", None]
    assert ask(world, request | {"args": {"tags": list("abc")}}, seed=2) == ["invalid_request", "args.tags"]


@pytest.mark.parametrize("value", [{1, 2}, frozenset("ab"), object(), b"bytes", Decimal("1.5"), lambda: 1, range(3)])
def test_f04_what_has_no_order_or_no_json_is_refused_by_its_field_and_never_turned_into_text(
    world: World, value: Any
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        world.fence.prepare(
            {"intent": "i", "domain": "d", "tool": "t", "agent": "a", "args": {"deep": [{"tags": value}]}}
        )
    assert refused.value.field == "args.deep[0].tags"
    assert all(found == [] for found in world.rows().values())


SAME = {
    "whole numbers": [1, 1.0, 1e0],
    "zero": [0, 0.0, -0.0],
    "large": [10**21, 1e21],
    "tuple": [[1, 2], (1, 2), [1.0, 2e0]],
    "keys": [{"a": 1, "b": {"d": 2, "c": 3}}, {"b": {"c": 3.0, "d": 2}, "a": 1}],
    "text": ["é😀", json.loads('"\\u00e9\\ud83d\\ude00"')],
}


@pytest.mark.parametrize("case", SAME)
def test_f05_spellings_of_one_value_are_one_identity(world: World, ledger: Witness, case: str) -> None:
    for value in SAME[case]:
        perform(world, ledger, lambda _: "done", args={"value": value})
    assert ledger.count() == 1


DIFFERENT = {
    "beyond 2^53": [2**53, 2**53 + 1],
    "beyond a double": [2**100, 2**100 + 1],
    "text and number": [1, "1"],
    "true and one": [True, 1],
    "null and absent": [{"a": None}, {}],
    "composed and decomposed": ["\u00e9", "e\u0301"],
    "order of a list": [[1, 2], [2, 1]],
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_f05_different_values_are_different_actions(world: World, ledger: Witness, case: str) -> None:
    first, second = DIFFERENT[case]
    perform(world, ledger, lambda _: "done", args={"value": first})
    with pytest.raises(IntentMismatch):
        perform(world, ledger, lambda _: "done", args={"value": second})
    assert ledger.count() == 1
    replay = world.fence.prepare(world.request(args={"value": first}))
    assert isinstance(replay, Replay)
    assert replay.certificate.args == {"value": first}


def test_f05_a_javascript_round_trip_is_the_same_action(world: World, ledger: Witness) -> None:
    """JSON.stringify(JSON.parse(text)) writes 1.0 as 1, -0.0 as 0, 1e21 as 1e+21 and escapes nothing above U+001F."""
    sent = json.loads('{"amount": 49.0, "delta": -0.0, "big": 1e21, "name": "\\u00e9", "rate": 1e-7}')
    back = json.loads('{"rate":1e-7,"name":"é","big":1e+21,"delta":0,"amount":49}')
    perform(world, ledger, lambda _: "done", args=sent)
    perform(world, ledger, lambda _: "done", args=back)
    assert ledger.count() == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_f05_what_is_no_number_is_refused_before_anything_is_admitted(
    world: World, ledger: Witness, value: float
) -> None:
    with pytest.raises((InvalidRequest, pydantic.ValidationError)):
        perform(world, ledger, lambda _: "done", args={"amount": value})
    assert ledger.count() == 0
    assert all(found == [] for found in world.rows().values())
