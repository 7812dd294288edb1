"""reconcile of what observed others: what happened obeys the commit predicate, unless somebody stands for it."""

from __future__ import annotations

from typing import Any

import pytest

from effectfence_pg import (
    ClosureAborted,
    EffectCert,
    EffectStatus,
    Fresh,
    ReadSetUnsettled,
    Replay,
)
from tests.support.rows import all_of
from tests.support.world import World


def judge(world: World, outcome: str, intent: str = "charge:1", **more: Any) -> EffectStatus:
    facts = {"attempt": 1, "evidence": {"ticket": 12}, "operator": "olga"}
    if outcome == "did_not_happen":
        facts["basis"] = "holder_dead"
    if outcome == "happened" and "result" not in more:
        facts["result"] = "seen downstream"
    return world.fence.reconcile(intent, outcome=outcome, **{**facts, **more})


def test_what_happened_obeys_the_commit_predicate(world: World) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"])
    world.fence.abort(prepared, "connection reset")
    status = judge(world, "happened")
    assert status.state == "executed"
    assert [(b.intent, b.state) for b in status.blockers] == [("base", "executed")]
    assert world.effect()["commit_asked"] is True
    assert world.moves()[-1] == ("failed", "executed", "reconciled_happened")
    world.fence.commit(base, "done")
    certificate = world.fence.commit(prepared, "seen downstream")
    assert isinstance(certificate, EffectCert)


def fallen(world: World) -> None:
    base = world.hold("base")
    prepared = world.admit(observes=["base"])
    world.fence.abort(base, "wrong account")
    with pytest.raises(ClosureAborted):
        world.fence.commit(prepared, "it did run")


def test_what_happened_over_a_rollback_is_refused_unless_somebody_stands_for_it(world: World) -> None:
    fallen(world)
    before = world.rows()
    with pytest.raises(ClosureAborted) as refused:
        judge(world, "happened", result=None)
    assert [(b.intent, b.state) for b in refused.value.blockers] == [("base", "aborted")]
    assert world.rows() == before

    status = judge(world, "happened", result=None, over=True)
    assert status.state == "committed"
    assert status.certificate is not None
    assert status.certificate.reconciled_over is not None
    assert [(b.intent, b.attempt, b.state) for b in status.certificate.reconciled_over] == [("base", 1, "aborted")]
    assert status.certificate.verify()
    assert world.moves()[-1] == ("aborted", "committed", "reconciled_over")


def test_a_certificate_over_a_rollback_is_listed_for_auditors(world: World) -> None:
    fallen(world)
    world.commit("ordinary")
    judge(world, "happened", result=None, over=True)
    listed = all_of(
        world.engine,
        "SELECT intent, reconciled_over FROM effectfence.certificate_audit "
        "WHERE namespace = :n AND reconciled_over IS NOT NULL",
        n=world.namespace,
    )
    assert listed == [("charge:1", {"operator": "olga", "blockers": [["base", 1, "aborted"]]})]
    replay = world.fence.prepare(world.request())
    assert isinstance(replay, Replay)
    assert replay.certificate.reconciled_over is not None


def test_over_is_no_mark_when_there_is_nothing_to_be_over(world: World) -> None:
    world.put("failed")
    status = judge(world, "happened", over=True)
    assert status.certificate is not None
    assert status.certificate.reconciled_over is None
    assert world.moves()[-1][2] == "reconciled_happened"


def test_a_failed_intent_blocks_itself_and_its_readers_and_nobody_else(world: World) -> None:
    world.put("failed", domain="order:1")
    assert world.commit("another domain", domain="order:2").seq == 1
    assert world.commit("another intent of the domain", domain="order:1")
    with pytest.raises(ReadSetUnsettled):
        world.fence.prepare(world.request("reader", read_set=[{"domain": "order:1", "seq": world.seq("order:1")}]))
    judge(world, "happened")
    assert isinstance(world.fence.prepare(world.request("reader", read_set=world.fence.observe("order:1"))), Fresh)
