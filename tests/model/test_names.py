"""The model speaks the library's language: the same states, moves and codes."""

from __future__ import annotations

from effectfence_pg import errors
from effectfence_pg.protocol import states
from tests.model import state
from tests.model.stepwise import HOLDER, OTHERS


def test_states_and_moves_are_those_of_the_library() -> None:
    assert {str(one): {str(other) for other in many} for one, many in states.TRANSITIONS.items()} == state.TRANSITIONS
    assert set(state.DEAD) == set(states.DEAD)
    assert set(state.UNSETTLED) == set(states.UNSETTLED)
    assert set(state.CASCADES_TO) == set(states.CASCADES_TO)


def test_refusals_are_codes_of_the_library() -> None:
    codes = {getattr(errors, name).code for name in errors.__all__ if hasattr(getattr(errors, name), "code")}
    assert codes >= state.REFUSALS


def test_causes_are_those_of_the_library() -> None:
    known = {str(cause) for cause in states.Cause}
    assert frozenset().union(*HOLDER.values(), *OTHERS.values()) <= known
