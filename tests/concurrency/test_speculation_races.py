"""Many who decide the same at the same moment: it is done once, and everybody is told what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    Aborted,
    BranchDecided,
    ClosureAborted,
    ClosurePending,
    CommitConflict,
    Committed,
    EffectCert,
    Fence,
    FenceError,
    Fresh,
    IntentInFlight,
    PreparedEffect,
    Replay,
    RolledBack,
    Settled,
)
from tests.support.holder import eventually
from tests.support.racing import Race, await_waiting, domain_gate, gate, of_kind
from tests.support.rows import one
from tests.support.speculation import UNDO, branch_state, broken, decided, ran, states
from tests.support.witness import Witness
from tests.support.world import World

MANY = 8


def at_once(world: World, act: Callable[[Fence], object], holding: Any, many: int = MANY) -> list[Any]:
    """The results of as many fences that do the same, all of them caught in the middle of it by what is held."""
    fences = [Fence(world.engine, namespace=world.namespace) for _ in range(many)]
    with holding:
        race = Race([lambda fence=fence: act(fence) for fence in fences]).start()
        await_waiting(world.engine, many)
    return race.results()


def rows_gate(world: World, intent: str) -> Any:
    """Keep everybody waiting who decides about this effect."""
    statement = "SELECT FROM effectfence.effects WHERE namespace = :namespace AND intent = :intent FOR UPDATE"
    return gate(world.engine, statement, namespace=world.namespace, intent=intent)


def branch_gate(world: World) -> Any:
    return gate(
        world.engine, "SELECT FROM effectfence.branches WHERE namespace = :n FOR NO KEY UPDATE", n=world.namespace
    )


def test_of_many_who_would_undo_an_effect_one_is_admitted(world: World) -> None:
    ran(world, "mine", branch="plan", compensation=UNDO)
    world.fence.abort_branch("plan", "contradicted")

    def prepare(fence: Fence) -> object:
        return fence.prepare_compensation("mine", attempt=1, agent="undoer")

    results = at_once(world, prepare, domain_gate(world.engine, world.namespace, "of:mine"))
    [fresh] = of_kind(results, Fresh)
    assert len(of_kind(results, IntentInFlight)) == MANY - 1, results
    assert isinstance(world.fence.commit(fresh.prepared, "refunded"), EffectCert)
    again = Race([lambda: prepare(world.fence)] * MANY).start().results()
    assert len(of_kind(again, Replay)) == MANY, again


def test_many_who_undo_all_that_fell_do_it_once(world: World, witness: Witness) -> None:
    ran(world, "base", branch="plan", compensation=UNDO)
    for number in range(3):
        ran(world, f"top:{number}", observes=["base"], compensation={"tool": f"undo top:{number}"})
    effects = world.fence.abort_branch("plan", "contradicted").effects

    def undo(ticket: PreparedEffect) -> str:
        witness.happened(ticket.tool)
        return "undone"

    while len(world.rows()["certificates"]) < len(effects):
        results = Race([lambda: world.fence.compensate(effects, undo, agent="undoer")] * MANY).start().results()
        assert {type(result) for result in results} <= {tuple, IntentInFlight}, results
    assert sorted(line["intent"] for line in witness.lines()) == ["refund", *(f"undo top:{n}" for n in range(3))]
    assert set(states(world, "base", "top:0", "top:1", "top:2").values()) == {"released"}


def test_many_who_settle_commit_each_effect_once(world: World) -> None:
    ran(world, "base", branch="plan")
    observed = "base"
    for number in range(1, 5):
        prepared = world.admit(f"waits:{number}", observes=[observed])
        observed = prepared.intent
        with pytest.raises(ClosurePending):
            world.fence.commit(prepared, "done")
    world.put("expired", "slow")
    world.fence.promote(branch="plan")
    world.fence.sweep()
    results = at_once(world, lambda fence: fence.settle(), rows_gate(world, "waits:1"))
    assert [type(result) for result in results] == [Settled] * MANY, results
    assert sum(result.committed for result in results) == 4
    assert (
        one(world.engine, "SELECT count(*) FROM effectfence.certificates WHERE namespace = :n", n=world.namespace) == 5
    )
    settled = "SELECT count(*) FROM effectfence.transitions WHERE namespace = :n AND cause = 'settled'"
    assert one(world.engine, settled, n=world.namespace) == 4


def test_many_who_fence_expired_leases_fence_each_once(world: World) -> None:
    for number in range(4):
        world.put("expired", f"slow:{number}")
    results = at_once(world, lambda fence: fence.settle(), rows_gate(world, "slow:0"))
    assert sum(result.fenced for result in results) == 4, results
    assert [len(world.moves(f"slow:{number}")) for number in range(4)] == [2] * 4


def test_many_who_promote_a_branch_commit_it_once(world: World) -> None:
    for number in range(5):
        ran(world, f"member:{number}", branch="plan")
    results = at_once(world, lambda fence: fence.promote(branch="plan"), rows_gate(world, "member:0"))
    assert sorted(result.effects for result in results) == [0] * (MANY - 1) + [5], results
    assert {type(result) for result in results} == {Committed}


def test_many_who_abort_a_branch_roll_it_back_once_and_are_told_the_same(world: World) -> None:
    ran(world, "base", branch="plan", compensation=UNDO)
    ran(world, "top", observes=["base"])
    results = at_once(world, lambda fence: fence.abort_branch("plan", "contradicted"), branch_gate(world))
    assert {type(result) for result in results} == {Aborted}, results
    assert {tuple(effect.intent for effect in result.effects) for result in results} == {("top", "base")}
    assert [world.moves(name)[-1][2] for name in ("base", "top")] == ["branch_aborted", "cascade"]
    assert (world.seq("of:base"), world.seq("of:top")) == (2, 2)


def test_of_many_who_promote_and_many_who_abort_one_side_stands(world: World) -> None:
    for number in range(3):
        ran(world, f"member:{number}", branch="plan")
    turn = iter(range(MANY))

    def decide(fence: Fence) -> object:
        if next(turn) % 2:
            return fence.promote(branch="plan")
        return fence.abort_branch("plan", "contradicted")

    results = at_once(world, decide, branch_gate(world))
    kinds = {type(result) for result in results}
    state = branch_state(world, "plan")[0]
    assert kinds == ({Committed, BranchDecided} if state == "committed" else {Aborted, ClosureAborted}), results
    assert set(states(world, "member:0", "member:1", "member:2").values()) == {state}
    assert broken(world.engine, world.namespace) == []


def test_a_branch_that_is_promoted_while_its_last_member_reports_commits_with_it_or_not_yet(world: World) -> None:
    for number in range(8):
        ran(world, f"first:{number}", branch=f"plan:{number}")
        last = world.admit(f"last:{number}", branch=f"plan:{number}")
        calls = [
            lambda number=number: world.fence.promote(branch=f"plan:{number}"),
            lambda last=last: world.fence.commit(last, "done"),
        ]
        promoted, reported = Race(calls).start().results()
        assert type(promoted) in {Committed, ClosurePending}, promoted
        assert not isinstance(reported, Exception), reported
        both = set(states(world, f"first:{number}", f"last:{number}").values())
        assert both == ({"committed"} if isinstance(promoted, Committed) else {"executed"})


def test_observations_by_two_at_once_are_both_on_record(world: World) -> None:
    """One ticket in two threads of one agent: neither overwrites what the other one saw."""
    for name in ("left", "right"):
        ran(world, name, branch=f"plan:{name}", domain=f"d:{name}")
    prepared = world.admit("mine")
    entries = {name: world.fence.observe(f"d:{name}") for name in ("left", "right")}
    turn = iter(("left", "right"))
    results = at_once(
        world,
        lambda fence: fence.observe_late(prepared, entries[name := next(turn)], (name,)),
        rows_gate(world, "mine"),
        many=2,
    )
    assert [type(result) for result in results] == [PreparedEffect] * 2, results
    assert {intent for intent, _, _ in world.edges("mine")} == {"left", "right"}
    world.fence.promote(branch="plan:left")
    world.fence.promote(branch="plan:right")
    certificate = world.fence.commit(prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert {entry.domain for entry in certificate.read_set} == {"d:left", "d:right"}
    assert certificate.verify()


def test_a_dependent_is_never_certified_beside_the_abort_of_what_it_observed(world: World) -> None:
    """Whoever wins, again and again: both are committed, or both are rolled back."""
    for number in range(10):
        decided(world, f"base:{number}")
        prepared = ran(world, f"top:{number}", observes=[f"base:{number}"])
        calls = [
            lambda prepared=prepared: world.fence.commit(prepared, "done", closure="promote"),
            lambda number=number: world.fence.abort_intent(f"base:{number}", attempt=1, reason="contradicted"),
        ]
        kinds = {type(result) for result in Race(calls).start().results()}
        assert kinds in ({EffectCert, CommitConflict}, {ClosureAborted, RolledBack})
        assert len(set(states(world, f"base:{number}", f"top:{number}").values())) == 1
    assert broken(world.engine, world.namespace) == []


def test_readers_that_arrive_while_their_source_is_rolled_back_are_refused_or_fall(world: World) -> None:
    for number in range(5):
        ran(world, f"base:{number}", branch=f"plan:{number}")
        readers = [
            lambda number=number, reader=reader: world.fence.prepare(
                world.request(f"reader:{number}:{reader}", observes=[f"base:{number}"])
            )
            for reader in range(4)
        ]
        abort = [lambda number=number: world.fence.abort_branch(f"plan:{number}", "contradicted")]
        *arrived, _ = Race(readers + abort).start().results()
        for reader, result in enumerate(arrived):
            if isinstance(result, Fresh):
                assert world.state(f"reader:{number}:{reader}") == "aborted"
            else:
                assert isinstance(result, FenceError), result
                assert result.code == "read_set_unsettled"
    assert broken(world.engine, world.namespace) == []


def test_waiters_of_one_branch_all_commit_when_it_does(engine: sa.Engine, world: World) -> None:
    ran(world, "base", branch="plan")
    tickets = [world.admit(f"waits:{number}", observes=["base"]) for number in range(4)]
    waiting = [
        lambda ticket=ticket: world.fence.commit(ticket, "done", closure="wait", timeout_seconds=20)
        for ticket in tickets
    ]
    race = Race(waiting).start()
    # All have reported, and none is decided before the branch is.
    executed = "SELECT count(*) FROM effectfence.effects WHERE namespace = :n AND state = 'executed' AND commit_asked"
    eventually(lambda: one(engine, executed, n=world.namespace) == len(tickets))
    world.fence.promote(branch="plan")
    assert [type(result) for result in race.results()] == [EffectCert] * 4
