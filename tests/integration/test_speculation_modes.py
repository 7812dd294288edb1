"""What commit does while something is undecided: require, hold, wait and promote; the result is durable in each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from effectfence_pg import ClosureAborted, ClosurePending, EffectCert, FenceConfig, FenceError, Held, InvalidRequest
from tests.support.speculation import UNDO, broken, decided, ran, states
from tests.support.world import World

PATIENCE = 20.0
MODES = ("require", "hold", "wait", "promote")


@pytest.fixture
def world(engine: sa.Engine, namespace: str) -> World:
    return World(engine, namespace, FenceConfig(poll_initial_seconds=0.005, poll_max_seconds=0.02))


@contextmanager
def meanwhile(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let another thread act once the caller has been seen waiting: at its second pause."""
    waits, seen, original = threading.Event(), [], time.sleep

    def sleep(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 2:
            waits.set()
        original(seconds)

    def other() -> None:
        assert waits.wait(PATIENCE)
        act()

    monkeypatch.setattr("effectfence_pg.waiting.room.time.sleep", sleep)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        yield
    finally:
        waits.set()
        thread.join()
    assert len(seen) >= 2


def kept(world: World, intent: str) -> tuple[str, bool, object]:
    """State, whether the commit was asked for, and the recorded result."""
    row = world.effect(intent)
    return row["state"], row["commit_asked"], json.loads(row["result"])


@pytest.mark.parametrize("mode", MODES)
def test_an_effect_with_a_branch_is_held_whatever_the_mode(world: World, mode: str) -> None:
    prepared = world.admit("member", branch="plan")
    held = world.fence.commit(prepared, {"n": 1}, closure=mode, timeout_seconds=PATIENCE)
    assert held == Held(intent="member", attempt=1)
    assert kept(world, "member")[::2] == ("executed", {"n": 1})
    assert world.effect("member")["lease_expires_at"] is None
    assert world.fence.commit(prepared, {"n": 1}, closure=mode) == held
    world.fence.promote(branch="plan")
    assert isinstance(world.fence.commit(prepared, {"n": 1}, closure=mode), EffectCert)


@pytest.mark.parametrize("mode", MODES)
def test_with_nothing_undecided_every_mode_commits(world: World, mode: str) -> None:
    world.commit("base")
    for observes in ((), ("base",)):
        prepared = world.admit(f"mine:{len(observes)}", observes=observes)
        assert isinstance(world.fence.commit(prepared, "done", closure=mode), EffectCert)


@pytest.mark.parametrize("mode", MODES)
def test_over_a_rollback_no_mode_commits(world: World, mode: str) -> None:
    base = ran(world, "base", branch="plan")
    prepared = world.admit("mine", observes=["base"], compensation=UNDO)
    world.fence.abort(base, "contradicted")
    with pytest.raises(ClosureAborted) as refused:
        world.fence.commit(prepared, "it did run", closure=mode, timeout_seconds=PATIENCE)
    # It fell in flight, with nothing to undo; now it is known to have run.
    [fallen] = refused.value.effects
    assert (fallen.intent, fallen.due, fallen.compensation.tool) == ("mine", True, UNDO["tool"])
    assert [(b.intent, b.state) for b in refused.value.blockers] == [("base", "aborted")]
    assert kept(world, "mine") == ("aborted", False, "it did run")
    assert world.fence.compensate(refused.value.effects, lambda _: "refunded", agent="undoer")
    assert world.state("mine") == "released"


def test_require_asks_for_the_commit_and_hold_does_not(world: World) -> None:
    ran(world, "base", branch="plan")
    with pytest.raises(ClosurePending):
        world.fence.commit(world.admit("required", observes=["base"]), 1)
    held = world.fence.commit(world.admit("held", observes=["base"]), 2, closure="hold")
    assert isinstance(held, Held)
    assert [(b.intent, b.state) for b in held.blockers] == [("base", "executed")]
    assert kept(world, "required") == ("executed", True, 1)
    assert kept(world, "held") == ("executed", False, 2)


def test_wait_commits_when_another_thread_promotes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(world, "base", branch="plan")
    prepared = world.admit("mine", observes=["base"])
    with meanwhile(lambda: world.fence.promote(branch="plan"), monkeypatch):
        certificate = world.fence.commit(prepared, "done", closure="wait", timeout_seconds=PATIENCE)
    assert isinstance(certificate, EffectCert)
    assert world.status("mine").certificate == certificate


def test_wait_is_told_when_what_it_waits_for_is_rolled_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(world, "base", branch="plan")
    prepared = world.admit("mine", observes=["base"])
    with (
        meanwhile(lambda: world.fence.abort_branch("plan", "contradicted"), monkeypatch),
        pytest.raises(ClosureAborted),
    ):
        world.fence.commit(prepared, "it did run", closure="wait", timeout_seconds=PATIENCE)
    assert kept(world, "mine")[::2] == ("aborted", "it did run")


def test_a_wait_that_ends_without_a_decision_is_pending_and_asked_for(world: World) -> None:
    ran(world, "base", branch="plan")
    with pytest.raises(ClosurePending):
        world.fence.commit(world.admit("mine", observes=["base"]), 1, closure="wait", timeout_seconds=0.05)
    assert kept(world, "mine") == ("executed", True, 1)
    world.fence.promote(branch="plan")
    assert world.fence.settle().committed == 1


def test_promote_commits_the_whole_closure(world: World) -> None:
    decided(world, "base")
    ran(world, "middle", observes=["base"])
    prepared = world.admit("mine", observes=["middle"], agent="agent-m")
    certificate = world.fence.commit(prepared, "done", closure="promote")
    assert isinstance(certificate, EffectCert)
    assert set(states(world, "base", "middle", "mine").values()) == {"committed"}
    assert [world.history(name)[-1][2:] for name in ("base", "middle")] == [("committed", "promoted", "agent-m")] * 2
    assert world.fence.commit(prepared, "done", closure="promote") == certificate


def test_promote_does_not_reach_into_an_open_branch(world: World) -> None:
    ran(world, "theirs", branch="plan")
    ran(world, "free", observes=["theirs"])
    prepared = world.admit("mine", observes=["free"])
    with pytest.raises(ClosurePending) as refused:
        world.fence.commit(prepared, 1, closure="promote")
    assert {b.intent for b in refused.value.blockers} == {"free", "theirs"}
    assert kept(world, "mine") == ("executed", True, 1)
    assert set(states(world, "theirs", "free").values()) == {"executed"}
    world.fence.promote(branch="plan")
    assert isinstance(world.fence.commit(prepared, 1, closure="promote"), EffectCert)
    assert world.state("free") == "committed"
    assert broken(world.engine, world.namespace) == []


@pytest.mark.parametrize("mode", ["maybe", "", "HOLD"])
def test_a_mode_that_there_is_not_is_refused(world: World, mode: str) -> None:
    prepared = world.admit("mine")
    with pytest.raises(InvalidRequest) as refused:
        world.fence.commit(prepared, 1, closure=mode)
    assert refused.value.field == "closure"
    assert world.state("mine") == "in_flight"


@pytest.mark.parametrize("mode", MODES)
def test_another_result_than_the_recorded_one_is_refused_in_every_mode(world: World, mode: str) -> None:
    ran(world, "base", branch="plan")
    prepared = ran(world, "mine", 1, observes=["base"])
    before = world.rows()
    with pytest.raises(FenceError) as refused:
        world.fence.commit(prepared, 2, closure=mode)
    assert refused.value.code == "commit_conflict"
    assert world.rows() == before
