"""The protocol as a whole: in every small configuration every invariant holds after every step."""

from __future__ import annotations

import os
import random
from functools import cache

import pytest

from tests.model.choices import Configuration
from tests.model.configurations import CASES, EVERYTHING
from tests.model.explorer import Exploration, explore, walk
from tests.model.state import REFUSALS, TRANSITIONS
from tests.model.stepwise import HOLDER, OTHERS

LONG = os.environ.get("EFFECTFENCE_MODEL_PROFILE") == "long"
"""Explores three steps deeper and walks a hundred times as often: minutes instead of seconds."""

WALKS, LENGTH = (5_000 if LONG else 50), 80


@cache
def explored(case: Configuration) -> Exploration:
    return explore(case, depth=case.depth + 3 * LONG)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_invariant_holds_after_every_step(case: Configuration) -> None:
    found = explored(case)
    assert found.violation is None, str(found.violation)
    assert found.situations > 100, "there is something to explore"


def test_every_refusal_is_met_while_exploring() -> None:
    assert frozenset().union(*(explored(case).codes for case in CASES)) >= REFUSALS


def test_every_move_of_the_table_and_every_cause_is_met_while_exploring() -> None:
    moves = frozenset().union(*(explored(case).moves for case in CASES))
    assert {(before, after) for before, after, _ in moves if before not in (None, after)} == {
        (before, after) for before, many in TRANSITIONS.items() for after in many
    }
    assert {cause for _, _, cause in moves} == frozenset().union(*HOLDER.values(), *OTHERS.values())


def test_every_invariant_holds_on_long_random_walks() -> None:
    for seed in range(WALKS):
        violation = walk(EVERYTHING, random.Random(seed), LENGTH)
        assert violation is None, f"seed {seed}: {violation}"
