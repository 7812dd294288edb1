"""Cases from the field: the incident of the three branches, and F23, F24 and F25."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    Aborted,
    ClosureAborted,
    ClosurePending,
    EffectCert,
    Fresh,
    Held,
    IntentFailed,
    InvalidRequest,
    PreparedEffect,
    ReadSetUnsettled,
)
from tests.support.rows import all_of, one
from tests.support.speculation import UNDO, branch_state, broken, chain_of, falls, ran, states
from tests.support.witness import Witness
from tests.support.world import World

DEEP = 10_000


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """What really happened, counted outside of the database."""
    return Witness(tmp_path / "witness")


def test_what_was_deployed_because_of_a_rolled_back_write_is_not_committed(world: World) -> None:
    """The incident: B writes X=1, C reads it and deploys, A contradicts B; C's own fence is valid, and is not enough."""
    undo = {"tool": "write_config", "args": {"X": 0}}
    write = world.admit("write_config", domain="config", branch="B", args={"X": 1}, compensation=undo)
    assert isinstance(world.fence.commit(write, {"X": 1}), Held)
    seen = world.fence.observe("config")
    deploy = world.admit("deploy", domain="deploy", branch="C", args={"version": 2}, read_set=seen)
    assert isinstance(world.fence.commit(deploy, "version 2"), Held)
    with pytest.raises(ClosurePending):
        world.fence.promote(branch="C")
    answer = world.fence.abort_branch("B", "A says that X is 0", actor="A")
    assert [(e.intent, e.due, e.compensation is not None) for e in answer.effects] == [
        ("deploy", True, False),
        ("write_config", True, True),
    ]
    assert isinstance(world.fence.reconcile_branch("C"), Aborted)
    with pytest.raises(ClosureAborted):
        world.fence.commit(deploy, "version 2")
    assert world.rows()["certificates"] == []
    undone = world.fence.compensate(answer.effects, lambda ticket: ticket.args, agent="A")
    assert [(certificate.tool, certificate.args) for certificate in undone] == [("write_config", {"X": 0})]
    assert states(world, "write_config", "deploy") == {"write_config": "released", "deploy": "aborted"}


@pytest.mark.parametrize("unknown", ["failed", "expired", "aborted_in_flight"])
def test_f23_one_unknown_intent_blocks_itself_its_readers_and_its_dependents_only(world: World, unknown: str) -> None:
    reads = world.fence.observe("d1")
    world.put(unknown, "unknown", domain="d1")
    world.fence.sweep()
    assert world.commit("another domain", domain="d2")
    assert world.commit("reads another domain", domain="d2", read_set=world.fence.observe("d2"))
    assert world.commit("unrelated", domain="d1")
    assert world.fence.observe("d1")[0].settled is False
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request("unknown", domain="d1"))
    for reader in (
        {"read_set": world.fence.observe("d1")},
        {"read_set": [{"domain": "d1", "seq": world.seq("d1")}]},
        {"observes": ["unknown"]},
    ):
        with pytest.raises(ReadSetUnsettled):
            world.fence.prepare(world.request("reader", **reader))
    assert reads[0].settled


def test_f23_a_validation_error_before_dispatch_leaves_nothing_unknown(world: World) -> None:
    for bad in ({"branch": ""}, {"observes": [""]}, {"compensation": {"args": {}}}, {"args": float("nan")}):
        with pytest.raises(InvalidRequest):
            world.fence.prepare({"intent": "a", "domain": "d", "tool": "t", "agent": "a"} | bad)
    assert all(found == [] for found in world.rows().values())


RESOLVING: dict[str, Callable[[World], object]] = {
    "reconcile": lambda w: w.fence.reconcile(
        "unknown", attempt=1, outcome="happened", result=1, evidence=1, operator="o"
    ),
    "clear": lambda w: w.fence.clear("unknown", attempt=1, basis="holder_dead", evidence=1, operator="o"),
    "late completion": lambda w: w.fence.commit(w.ticket("unknown"), "done"),
    "compensation": lambda w: w.fence.commit(
        w.fence.prepare_compensation("unknown", attempt=1, agent="o").prepared, "refunded"
    ),
}


@pytest.mark.parametrize("resolve", RESOLVING)
def test_f23_it_is_resolved_while_it_is_fenced_and_its_readers_run_again(world: World, resolve: str) -> None:
    world.put("failed", "unknown", domain="d1", compensation=UNDO)
    RESOLVING[resolve](world)
    assert isinstance(world.fence.prepare(world.request("reader", read_set=world.fence.observe("d1"))), Fresh)


def transfer(world: World, witness: Witness, failures: int) -> PreparedEffect:
    """An agent's plan: credit, then withdraw, which fails that many times and is tried again."""
    credit = ran(world, "credit", branch="transfer", compensation={"tool": "undo credit"})
    witness.happened("credit")
    for _ in range(failures):
        withdraw = world.admit("withdraw", branch="transfer")
        world.fence.abort(withdraw, "the model sent a bad amount", effect="none")
    return credit


def test_f24_an_error_that_the_model_recovers_from_undoes_nothing(world: World, witness: Witness) -> None:
    transfer(world, witness, failures=2)
    withdraw = ran(world, "withdraw", branch="transfer")
    assert withdraw.attempt == 3
    assert world.fence.promote(branch="transfer").effects == 2
    assert states(world, "credit", "withdraw") == {"credit": "committed", "withdraw": "committed"}
    assert world.history("credit")[-1][2:4] == ("committed", "promoted")
    assert witness.count() == 1


def test_f24_the_undo_happens_once_when_the_plan_is_given_up_and_is_a_fenced_intent(
    world: World, witness: Witness
) -> None:
    """Abort is a decision, said twice, and undone by two who both saw the errors."""
    transfer(world, witness, failures=2)

    def undo(ticket: PreparedEffect) -> str:
        witness.happened(ticket.tool)
        return "undone"

    first = world.fence.abort_branch("transfer", "given up")
    second = world.fence.abort_branch("transfer", "given up")
    assert [effect.intent for effect in first.effects] == ["credit"]
    [certificate] = world.fence.compensate(first.effects, undo, agent="first")
    [replayed] = world.fence.compensate(second.effects, undo, agent="second")
    assert replayed == certificate
    assert (witness.count("credit"), witness.count("undo credit")) == (1, 1)
    assert isinstance(world.status(certificate.intent).certificate, EffectCert)
    assert (world.state("credit"), branch_state(world, "transfer")[0]) == ("released", "aborted")


def test_f25_what_rests_on_a_rolled_back_effect_is_never_certified(world: World) -> None:
    a = ran(world, "A", branch="plan")
    ran(world, "B", observes=["A"])
    ran(world, "C", observes=["B"])
    world.fence.abort(a, "contradicted")
    assert set(states(world, "A", "B", "C").values()) == {"aborted"}
    assert falls(world) == {
        "A": ("rolled_back", None, "agent-a"),
        "B": ("cascade", "A", "agent-a"),
        "C": ("cascade", "A", "agent-a"),
    }
    wrote = (
        "SELECT count(DISTINCT xmin::text) FROM effectfence.transitions WHERE namespace = :n AND to_state = 'aborted'"
    )
    assert one(world.engine, wrote, n=world.namespace) == 1
    for intent in ("B", "C"):
        with pytest.raises(ClosureAborted):
            world.fence.commit(world.ticket(intent), "done")
    assert world.rows()["certificates"] == []


def test_f25_what_rests_on_another_effect_commits_after_it(world: World) -> None:
    ran(world, "A", branch="plan")
    b = world.admit("B", observes=["A"])
    with pytest.raises(ClosurePending):
        world.fence.commit(b, "done")
    world.fence.promote(branch="plan")
    assert isinstance(world.fence.commit(b, "done"), EffectCert)


@pytest.mark.parametrize("decision", ["abort", "promote"])
def test_f25_a_chain_of_ten_thousand_is_decided_as_a_whole(migrated_database: str, decision: str) -> None:
    """In a database of its own: so many rows would be in the way of everybody else."""
    engine = sa.create_engine(migrated_database)
    world = World(engine, "tenant")
    chain_of(world, DEEP)
    started = time.monotonic()
    if decision == "abort":
        answer = world.fence.abort_intent("link:0", attempt=1, reason="contradicted", actor="olga")
        assert len(answer.effects) == DEEP
    else:
        assert world.fence.promote(intent=f"link:{DEEP - 1}", actor="olga").effects == DEEP
    assert time.monotonic() - started < 60
    became = "aborted" if decision == "abort" else "committed"
    counted = "SELECT state, count(*) FROM effectfence.effects WHERE namespace = :n GROUP BY state"
    assert all_of(world.engine, counted, n=world.namespace) == [(became, DEEP)]
    logged = (
        "SELECT count(*), count(DISTINCT xmin::text), count(origin_key) FROM effectfence.transitions "
        "WHERE namespace = :n AND to_state = :became AND actor = 'olga'"
    )
    origins = DEEP - 1 if decision == "abort" else 0
    assert all_of(world.engine, logged, n=world.namespace, became=became) == [(DEEP, 1, origins)]
    assert broken(world.engine, world.namespace) == []
    engine.dispose()
