"""I8: only the current token moves an effect; who else may, does so by name and on record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from effectfence_pg import Fence, FenceError, LeaseLost, UnknownTicket
from tests.support.rows import all_of
from tests.support.world import STATES, World

VERBS: dict[str, Callable[[Fence, Any], object]] = {
    "commit": lambda fence, ticket: fence.commit(ticket, "forged"),
    "hold": lambda fence, ticket: fence.commit(ticket, "forged", closure="hold"),
    "abort": lambda fence, ticket: fence.abort(ticket, "forged"),
    "release": lambda fence, ticket: fence.abort(ticket, "forged", effect="none"),
    "renew": lambda fence, ticket: fence.renew(ticket),
}


@pytest.mark.parametrize("state", STATES)
def test_a_forged_token_moves_nothing_in_any_state(world: World, state: str) -> None:
    forged = world.put(state).model_copy(update={"token": uuid4()})
    before = world.rows()
    for act in VERBS.values():
        with pytest.raises(UnknownTicket):
            act(world.fence, forged)
        assert world.rows() == before


@pytest.mark.parametrize("state", ["superseded", "released"])
def test_the_token_of_an_earlier_attempt_does_not_move_the_current_one(world: World, state: str) -> None:
    old = world.put(state)
    if state == "released":
        world.admit()
    current = world.effect(attempt=2)
    for act in VERBS.values():
        with contextlib.suppress(FenceError):
            act(world.fence, old)
        assert world.effect(attempt=2) == current
        assert world.state(attempt=1) == state
    with pytest.raises(LeaseLost):
        world.fence.renew(old)


def test_a_token_does_not_open_another_effect(world: World) -> None:
    mine, theirs = world.admit("mine"), world.admit("theirs")
    stolen = theirs.model_copy(update={"token": mine.token})
    before = world.rows()
    for act in VERBS.values():
        with pytest.raises(UnknownTicket):
            act(world.fence, stolen)
    assert world.rows() == before


def test_whoever_moves_an_effect_without_its_token_is_on_record(world: World) -> None:
    """Operators, cascades, sweeps and takeovers are the named exceptions."""
    world.put("failed", "reconciled")
    world.fence.clear("reconciled", attempt=1, basis="holder_dead", evidence=1, operator="olga")
    world.put("expired", "swept")
    world.fence.sweep()
    world.put("superseded", "taken over", agent="agent-t")
    world.put("aborted_in_flight", "cascaded")
    world.put("expired", "noticed")
    with pytest.raises(FenceError):
        world.fence.prepare(world.request("noticed", agent="agent-n"))
    moved = all_of(
        world.engine,
        "SELECT e.intent, t.cause, t.actor FROM effectfence.transitions t "
        "JOIN effectfence.effects e USING (namespace, intent_key, attempt) "
        "WHERE t.namespace = :n AND t.cause NOT IN ('admitted', 'executed', 'rolled_back', 'outcome_unknown')",
        n=world.namespace,
    )
    assert set(moved) == {
        ("reconciled", "reconciled_did_not_happen", "olga"),
        ("swept", "lease_expired", "effectfence"),
        ("taken over", "takeover", "agent-t"),
        ("cascaded", "cascade", "agent-z"),
        ("noticed", "lease_expired", "agent-n"),
    }
