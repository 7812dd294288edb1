from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import effectfence_pg
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import EffectRequest, Fingerprint, difference, fingerprint, key_of, same_action

ELSEWHERE = """
import json, random, sys
from effectfence_pg.values import EffectRequest, VectorClock

def shuffled(value):
    if isinstance(value, dict):
        items = [(key, shuffled(item)) for key, item in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled(item) for item in value] if isinstance(value, list) else value

facts = json.loads(sys.argv[1])
request = EffectRequest(**{**facts, "args": shuffled(facts["args"]), "identity": set(facts["identity"])})
clock = VectorClock(shuffled(facts["known_clock"]))
print(request.args_text, *(part.hex() for part in request.fingerprint[:2]), request.fingerprint[2], clock.digest())
"""


def made(args: Any, *, domain: str = "d", tool: str = "t", identity: Any = None) -> Fingerprint:
    return EffectRequest(intent="i", domain=domain, tool=tool, agent="a", args=args, identity=identity).fingerprint


def test_f04_the_identity_is_the_same_in_every_process() -> None:
    facts = {
        "intent": "i",
        "domain": "d",
        "tool": "t",
        "agent": "a",
        "args": {letter: {"z": 1.0, "a": [letter, {"é": 2**70, "b": 1e-6}]} for letter in "qwertyuiop"},
        "known_clock": dict.fromkeys("qwertyuiop", 1),
        "identity": ["q", "w", "e", "r"],
    }
    root = str(Path(effectfence_pg.__file__).parents[1])
    answers = {
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE, json.dumps(facts)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        ).stdout
        for seed in ("0", "1", "4242", "random")
    }
    assert len(answers) == 1


def test_f04_a_set_is_refused_by_its_field_and_never_written_as_text() -> None:
    with pytest.raises(ValueError, match=r"args\.tags: set is no JSON type"):
        made({"tags": {"b", "a"}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": 1.0}),
        ({"n": -0.0}, {"n": 0}),
        ({"a": 1, "b": [2, 3.0]}, {"b": [2.0, 3], "a": 1}),
        ({"n": 10**22}, {"n": 1e22}),
    ],
)
def test_f05_what_a_javascript_hop_changes_is_one_action(one: Any, other: Any) -> None:
    assert same_action(made(one), made(other))
    assert made(one) == made(other)


def test_f05_integers_beyond_a_double_are_told_apart() -> None:
    assert difference(made({"n": 2**53}), made({"n": 2**53 + 1})) == "args"


def test_f06_no_two_names_run_into_one() -> None:
    assert not same_action(made({}, domain="a:b", tool="c"), made({}, domain="a", tool="b:c"))
    assert not same_action(made({}, domain='a","tool":"b', tool="c"), made({}, domain="a", tool='b","tool":"c'))
    assert key_of("a:b") != key_of("a")
    assert len(key_of("x" * 1024)) == 32


def test_f07_another_tool_domain_or_other_args_are_another_action() -> None:
    stored = made({"amount": 1})
    assert difference(stored, made({"amount": 1})) is None
    assert difference(stored, made({"amount": 2})) == "args"
    assert difference(stored, made({"amount": 1}, tool="u"), tools=("t", "u")) == "tool"
    assert difference(stored, made({"amount": 1}, domain="e"), domains=("d", "e"), tools=("t", "t")) == "domain"
    assert stored.identity_digest == stored.args_digest


def test_the_declared_fields_alone_decide_when_both_declare_them() -> None:
    stored = made({"order": 1, "note": "please"}, identity=["order"])
    assert same_action(stored, made({"order": 1.0, "note": "now"}, identity=["order"]))
    assert difference(stored, made({"order": 2, "note": "please"}, identity=["order"])) == "identity"
    assert not same_action(stored, made({"order": 1, "note": "now"}, identity=["order"], tool="u"))


def test_another_declaration_is_a_mismatch_that_says_so() -> None:
    stored = made({"order": 1, "note": "please"}, identity=["order"])
    assert difference(stored, made({"order": 1, "note": "now"})) == "declaration"
    assert difference(stored, made({"order": 1, "note": "now"}, identity=["order", "note"])) == "declaration"
    assert (
        difference(made({"order": 1, "note": "x"}), made({"order": 1, "note": "y"}, identity=["order"]))
        == "declaration"
    )


def test_equal_args_are_the_same_action_under_any_declaration() -> None:
    args = {"order": 1, "note": "please"}
    assert same_action(made(args), made(args, identity=["order"]))
    assert same_action(made(args, identity=["note"]), made(args, identity=["order"]))


def test_a_declaration_is_a_sorted_set() -> None:
    args = {"a": 1, "b": 2}
    assert made(args, identity=["b", "a", "b"]) == made(args, identity=("a", "b")) == made(args, identity={"a", "b"})
    assert made(args, identity=["b", "a"]).identity_fields == ("a", "b")


@pytest.mark.parametrize(
    ("args", "identity"), [({"a": 1}, ["b"]), ({"a": 1}, ["a", "b"]), ([1], ["a"]), (None, ["a"]), ({"a": 1}, [])]
)
def test_a_declaration_that_args_cannot_keep_is_refused(args: Any, identity: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        fingerprint(domain="d", tool="t", args=args, identity=identity)
    assert refused.value.field == "identity"


def test_a_missing_arg_and_a_null_arg_are_two_identities() -> None:
    assert made({"a": None}, identity=["a"]).identity_digest != made({"a": 0}, identity=["a"]).identity_digest


def test_the_canonical_text_at_hand_changes_nothing() -> None:
    for args, text in (({"a": "é"}, '{"a":"é"}'), ({"a": 1.0}, '{"a":1.0}')):
        assert fingerprint(domain="d", tool="t", args=args, args_text=text) == fingerprint(
            domain="d", tool="t", args=args
        )
