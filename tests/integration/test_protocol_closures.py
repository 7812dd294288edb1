"""commit of an effect that observed others: it may stand only when they do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effectfence_pg import (
    ClosureAborted,
    ClosurePending,
    CommitConflict,
    EffectCert,
    Held,
    ReadSetStale,
)
from tests.support.world import World


def stored_result(world: World, intent: str = "charge:1") -> Any:
    text = world.effect(intent)["result"]
    return None if text is None else json.loads(text)


def test_a_dead_closure_is_named_before_a_moved_read_set(world: World) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"], read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    world.edit("base", state="failed", failure="lease_expired")
    with pytest.raises(ClosureAborted) as refused:
        world.fence.commit(prepared, "done")
    assert [(b.intent, b.state) for b in refused.value.blockers] == [("base", "failed")]
    assert (world.state(), stored_result(world)) == ("aborted", "done")
    assert world.moves()[-1] == ("in_flight", "aborted", "closure_dead")
    assert base.intent == "base"


def test_a_moved_read_set_is_named_before_an_undecided_closure(world: World) -> None:
    world.hold("base")
    prepared = world.admit(observes=["base"], read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale):
        world.fence.commit(prepared, "done")
    assert (world.state(), stored_result(world)) == ("failed", "done")


def test_an_undecided_closure_holds_the_effect_and_asks_for_the_commit(world: World) -> None:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    with pytest.raises(ClosurePending) as refused:
        world.fence.commit(prepared, "done")
    assert refused.value.retryable
    assert [(b.intent, b.attempt, b.state) for b in refused.value.blockers] == [("base", 1, "executed")]
    row = world.effect()
    assert (row["state"], row["commit_asked"], row["lease_expires_at"], stored_result(world)) == (
        "executed",
        True,
        None,
        "done",
    )
    assert world.moves()[-1] == ("in_flight", "executed", "executed")


def test_a_held_effect_did_not_ask_for_its_commit_until_it_does(world: World) -> None:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    held = world.fence.commit(prepared, "done", closure="hold")
    assert isinstance(held, Held)
    assert (held.intent, held.attempt) == ("charge:1", 1)
    assert [(b.intent, b.state) for b in held.blockers] == [("base", "executed")]
    assert world.effect()["commit_asked"] is False
    before = world.rows()
    assert world.fence.commit(prepared, "done", closure="hold") == held
    assert world.rows() == before
    with pytest.raises(ClosurePending):
        world.fence.commit(prepared, "done")
    assert world.effect()["commit_asked"] is True
    before = world.rows()
    with pytest.raises(ClosurePending):
        world.fence.commit(prepared, "done")
    assert world.rows() == before


def test_an_executed_effect_commits_after_what_it_observed(world: World) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"])
    world.fence.commit(prepared, "done", closure="hold")
    base_certificate = world.fence.commit(base, "done")
    certificate = world.fence.commit(prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert base_certificate.vector_clock.le(certificate.vector_clock)
    assert world.moves()[-1] == ("executed", "committed", "committed")


def test_an_executed_effect_is_not_checked_against_its_read_set_again(world: World) -> None:
    base = world.hold("base", domain="stock")
    prepared = world.admit(read_set=world.fence.observe("stock"))
    world.fence.commit(prepared, "done", closure="hold")
    world.fence.commit(base, "done")
    world.commit("restock", domain="stock")
    assert isinstance(world.fence.commit(prepared, "done"), EffectCert)


def test_an_executed_effect_keeps_its_first_result(world: World) -> None:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    world.fence.commit(prepared, "first", closure="hold")
    before = world.rows()
    with pytest.raises(CommitConflict):
        world.fence.commit(prepared, "second", closure="hold")
    assert world.rows() == before
