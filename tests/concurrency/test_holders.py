"""Holders that die, or stop and wake up when others have gone on (F10, F14). They are real processes with real signals."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from effectfence_pg import EffectCert, Fresh, IntentFailed, Replay
from tests.support.actor import Actor, actors, outcomes, ready
from tests.support.racing import Race, of_kind
from tests.support.rows import Snapshot, all_of
from tests.support.witness import Witness
from tests.support.world import World

EVIDENCE = {"evidence": {"provider": "no such charge"}, "operator": "olga"}


@pytest.fixture
def holder(database_url: str, namespace: str, witness: Witness) -> Iterator[Actor]:
    """A process that is this test's own to kill."""
    with actors(1) as (one,):
        ready([one], database_url, namespace, witness=witness.path)
        yield one


def hold(holder: Actor, world: World, **more: Any) -> dict[str, Any]:
    """Let the process be admitted, and do the effect; its ticket. It records nothing."""
    admission = holder.do("prepare", **world.request(**more).model_dump(mode="json"))
    assert admission["kind"] == "fresh", admission
    assert holder.do("spend", ticket=admission["ticket"]) == {"kind": "spent"}
    return admission["ticket"]


def test_a_holder_killed_after_the_effect_leaves_an_unknown_outcome_that_nobody_runs_again(
    holder: Actor, world: World, witness: Witness, crew: Callable[..., Sequence[Actor]]
) -> None:
    hold(holder, world)
    os.kill(holder.pid, signal.SIGKILL)
    holder.process.wait()
    world.expire()
    with pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request())
    assert (refused.value.state, refused.value.reason) == ("failed", "lease expired, outcome unknown")
    everybody = crew()
    charge = ("charge", world.request().model_dump(mode="json"))
    for racer in everybody:
        racer.start(charge, charge)
    assert {outcome["kind"] for outcome in outcomes(everybody)} == {"intent_failed"}
    assert witness.count() == 1
    assert world.moves() == [(None, "in_flight", "admitted"), ("in_flight", "failed", "lease_expired")]

    world.fence.clear("charge:1", attempt=1, basis="holder_dead", **EVIDENCE)
    for racer in everybody:
        racer.start(charge, charge)
    kinds = [outcome["kind"] for outcome in outcomes(everybody)]
    assert kinds.count("committed") == 1, kinds
    assert set(kinds) <= {"committed", "replay", "intent_in_flight"}, kinds
    # One by the killed process, whose effect the operator denied, and exactly one by a new attempt.
    assert [line["attempt"] for line in witness.lines()] == [1, 2]


def test_a_holder_killed_before_the_effect_leaves_an_unknown_outcome_as_well(
    holder: Actor, world: World, witness: Witness
) -> None:
    assert holder.do("prepare", **world.request().model_dump(mode="json"))["kind"] == "fresh"
    os.kill(holder.pid, signal.SIGKILL)
    holder.process.wait()
    world.expire()
    results = Race([lambda: world.fence.prepare(world.request())] * 4).start().results()
    assert len(of_kind(results, IntentFailed)) == 4, results
    assert witness.count() == 0


@contextlib.contextmanager
def stopped(process: Actor) -> Iterator[None]:
    """It stands still, and goes on afterwards as if no time had passed."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def without(snapshot: Snapshot, *tables: str) -> Snapshot:
    return {name: rows for name, rows in snapshot.items() if name not in tables}


def second_attempt(snapshot: Snapshot) -> list[Any]:
    """The stored row of the attempt that completed, the place it stands in included."""
    return [row for row in snapshot["effects"] if row[5] == 2]


@pytest.mark.parametrize("lease_ends_by", ["a duplicate", "a sweep", "a takeover"])
def test_a_holder_that_wakes_up_after_another_one_completed_moves_nothing(
    lease_ends_by: str, crew: Callable[..., Sequence[Actor]], world: World, witness: Witness
) -> None:
    holder = crew()[0]
    policy = "takeover" if lease_ends_by == "a takeover" else "fence"
    ticket = hold(holder, world, on_lease_expiry=policy)
    with stopped(holder):
        world.expire()
        if lease_ends_by == "a sweep":
            assert world.fence.sweep() == 1
        elif lease_ends_by == "a duplicate":
            with pytest.raises(IntentFailed):
                world.fence.prepare(world.request())
        if lease_ends_by != "a takeover":
            # The downstream was given the higher number before it was asked: the stopped holder cannot act any more.
            world.fence.clear("charge:1", attempt=1, basis="fenced_downstream", **EVIDENCE)
        second = world.fence.prepare(world.request(on_lease_expiry=policy, agent="agent-b"))
        assert isinstance(second, Fresh)
        assert (second.prepared.attempt, second.prepared.seq > ticket["seq"]) == (2, True)
        witness.happened("charge:1", attempt=2)
        certificate = world.fence.commit(second.prepared, "by b")
        assert isinstance(certificate, EffectCert)
        before, told = world.rows(), world.history()
        state = world.state(attempt=1)
        assert state == ("superseded" if lease_ends_by == "a takeover" else "released")

    committed = holder.do("commit", ticket=ticket, result="by a")
    renewed = holder.do("renew", ticket=ticket)
    aborted = holder.do("abort", ticket=ticket, reason="woke up late")
    for refused in (committed, renewed, aborted):
        assert refused["kind"] == "lease_lost", refused
        assert (refused["facts"]["attempt"], refused["facts"]["state"]) == (1, state)
    assert (committed["facts"]["evidence_kept"], aborted["facts"]["evidence_kept"]) == (True, True)

    # Evidence is appended; everything else is as it was, byte for byte.
    after = world.rows()
    assert without(after, "effects", "transitions") == without(before, "effects", "transitions")
    assert second_attempt(after) == second_attempt(before) != []
    assert world.state(attempt=1) == state
    assert set(before["transitions"]) <= set(after["transitions"])
    appended = (1, state, state, "late_evidence", "agent-a")
    assert [move for move in world.history() if move not in told] == [appended, appended]
    late = (
        "SELECT evidence FROM effectfence.transitions WHERE namespace = :n AND cause = 'late_evidence' ORDER BY version"
    )
    assert all_of(world.engine, late, n=world.namespace) == ['"by a"', None]
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate
    assert witness.count() == 2
