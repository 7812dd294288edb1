"""I7: a recorded result is never lost, whatever the verdict was and whatever comes after it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import Fence, FenceError, PreparedEffect
from tests.support.rows import all_of, change
from tests.support.world import STATES, World

RESULT = {"receipt": "r-1", "text": "é\u2028\x00"}
STORED = json.dumps(RESULT, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def on_record(world: World, result: str = STORED) -> int:
    """In how many places the database holds the result: of an effect, or as evidence of a transition."""
    return len(
        all_of(
            world.engine,
            "SELECT 1 FROM effectfence.effects WHERE namespace = :n AND result = :r UNION ALL "
            "SELECT 1 FROM effectfence.transitions WHERE namespace = :n AND evidence = :r",
            n=world.namespace,
            r=result,
        )
    )


def stale(world: World) -> PreparedEffect:
    prepared = world.admit(read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    return prepared


def pending(world: World) -> PreparedEffect:
    world.hold("base")
    return world.admit(observes=["base"])


def fallen(world: World) -> PreparedEffect:
    prepared = pending(world)
    world.edit("base", state="failed", failure="lease_expired")
    return prepared


WAYS: dict[str, Callable[[World], PreparedEffect]] = {
    **{
        state: (lambda world, state=state: world.put(state))
        for state in STATES
        if state not in {"executed", "committed", "aborted"}
    },
    "stale": stale,
    "pending": pending,
    "fallen": fallen,
}
"""Every situation in which a tool can have run and its holder reports for the first time."""


def follow_ups(fence: Fence, ticket: PreparedEffect) -> list[Callable[[], object]]:
    operator: dict[str, Any] = {"attempt": ticket.attempt, "evidence": 1, "operator": "o"}
    return [
        lambda: fence.commit(ticket, RESULT),
        lambda: fence.commit(ticket, "another result"),
        lambda: fence.renew(ticket),
        lambda: fence.abort(ticket, "no", effect="none"),
        lambda: fence.abort(ticket, "no"),
        fence.sweep,
        lambda: fence.prepare({"intent": "charge:1", "domain": "of:charge:1", "tool": "charge", "agent": "b"}),
        lambda: fence.reconcile("charge:1", outcome="did_not_happen", basis="holder_dead", **operator),
        lambda: fence.reconcile("charge:1", outcome="happened", result="another result", **operator),
        lambda: fence.reconcile("charge:1", outcome="compensated", **operator),
        lambda: fence.prepare({"intent": "charge:1", "domain": "of:charge:1", "tool": "charge", "agent": "b"}),
        lambda: fence.commit(ticket, RESULT),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_the_result_is_durable_when_commit_returns_and_stays_whatever_follows(world: World, way: str) -> None:
    ticket = WAYS[way](world)
    with contextlib.suppress(FenceError):
        world.fence.commit(ticket, RESULT)
    assert on_record(world) >= 1
    for act in follow_ups(world.fence, ticket):
        with contextlib.suppress(FenceError):
            act()
        assert on_record(world) >= 1


@pytest.mark.parametrize("state", ["executed", "committed", "aborted"])
def test_a_result_on_record_is_never_overwritten(world: World, state: str) -> None:
    ticket = world.put(state)
    for act in follow_ups(world.fence, ticket):
        with contextlib.suppress(FenceError):
            act()
        assert on_record(world, '"done"') >= 1
        assert world.effect(attempt=1)["result"] == '"done"'


def test_nothing_that_was_recorded_can_be_deleted(world: World) -> None:
    world.commit()
    for table in ("effects", "certificates", "transitions", "edges", "domains", "intents"):
        with pytest.raises(Exception, match="refused"):
            change(world.engine, f"TRUNCATE effectfence.{table} CASCADE")
    for table in ("effects", "certificates", "transitions", "domains", "intents"):
        with pytest.raises(Exception, match="refused"):
            change(world.engine, f"DELETE FROM effectfence.{table} WHERE namespace = :n", n=world.namespace)
