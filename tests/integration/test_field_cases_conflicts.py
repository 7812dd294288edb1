"""Cases from the field about tenants, conflicts and refusals. The tools are counted by a ledger that the fence does not know."""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import (
    Fence,
    Fresh,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    InvalidRequest,
    UnknownIntent,
)
from tests.support.rows import rows
from tests.support.witness import Witness
from tests.support.world import World, perform


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


def test_f06_the_same_intent_of_two_tenants_is_two_effects(world: World, ledger: Witness) -> None:
    other = World(world.engine, world.namespace + "-b")
    perform(world, ledger, lambda _: "a's secret")
    assert perform(other, ledger, lambda _: "b's own", agent="b") == "b's own"
    assert ledger.count() == 2
    assert world.fence.status("charge:1").result == "a's secret"


def test_f06_a_tenant_cannot_read_replay_reconcile_or_block_anothers(world: World) -> None:
    other = Fence(world.engine, namespace=world.namespace + "-b")
    world.put("failed", "fenced", domain="shared")
    world.commit("done", domain="shared")
    before = world.rows()
    for intent in ("fenced", "done"):
        with pytest.raises(UnknownIntent):
            other.status(intent)
        with pytest.raises(UnknownIntent):
            other.reconcile(intent, attempt=1, outcome="happened", result=1, evidence=1, operator="b")
    assert other.observe("shared")[0].settled
    assert isinstance(other.prepare(world.request("fenced", domain="shared")), Fresh)
    assert world.rows() == before


def test_f06_names_are_never_glued_together(world: World, ledger: Witness) -> None:
    engine, base = world.engine, world.namespace
    for namespace, intent, domain in [
        (f"{base}:b", "c", "d"),
        (base, "b:c", "d"),
        (base, "b", "c:d"),
        (base, "b:c:d", ""),
        (f"{base}:b", "c:d", "e"),
    ]:
        perform(World(engine, namespace), ledger, lambda _: "done", intent=intent, domain=domain or "e")
    assert ledger.count() == 5


@pytest.mark.parametrize("other", [{"tool": "refund"}, {"args": {"cents": 1}}, {"domain": "elsewhere"}])
def test_f07_another_action_under_the_same_intent_is_a_conflict_and_changes_nothing(
    world: World, ledger: Witness, other: dict[str, Any]
) -> None:
    perform(world, ledger, lambda _: "done")
    before = world.rows()
    with pytest.raises(IntentMismatch) as refused:
        perform(world, ledger, lambda _: "done", **other)
    error = refused.value
    assert len({error.stored_args, error.given_args}) == 2
    assert all(len(digest) == 64 for digest in (error.stored_args, error.given_args))
    assert ledger.count() == 1
    assert world.rows() == before
    assert perform(world, ledger, lambda _: "again") == "done"


def test_f08_two_equal_calls_in_one_message_are_one_effect_and_both_are_answered(world: World, ledger: Witness) -> None:
    answers = [perform(world, ledger, lambda _: {"receipt": 7}) for _ in range(2)]
    assert answers == [{"receipt": 7}, {"receipt": 7}]
    assert ledger.count() == 1


def test_f08_two_equal_calls_that_are_both_meant_have_an_intent_each(world: World, ledger: Witness) -> None:
    for occurrence in (1, 2, 1, 2):
        perform(world, ledger, lambda _: "done", intent=f"charge:order-1:{occurrence}", domain="order:1")
    assert ledger.count() == 2


@pytest.mark.parametrize("size", [10_000, 1_000_000])
@pytest.mark.parametrize("name", ["intent", "domain", "tool"])
def test_f09_a_name_of_any_length_is_a_clear_error_before_any_database_work(name: str, size: int) -> None:
    letters = string.ascii_letters + "éß😀"
    long = "".join(random.Random(size).choices(letters, k=size))
    nowhere = Fence("postgresql://nobody@127.0.0.1:1/nowhere", namespace="n")
    request = {"intent": "i", "domain": "d", "tool": "t", "agent": "a"} | {name: long}
    with pytest.raises(InvalidRequest) as refused:
        nowhere.prepare(request)
    assert refused.value.field == name
    assert "1024 bytes" in refused.value.reason
    assert len(str(refused.value)) < 200, "the name is not repeated"


def test_f11_refused_duplicates_do_not_touch_the_owner(world: World, ledger: Witness) -> None:
    owner = world.admit()
    before = world.rows()
    for _ in range(3):
        with pytest.raises(IntentInFlight):
            perform(world, ledger, lambda _: "b")
        with pytest.raises(IntentMismatch):
            perform(world, ledger, lambda _: "c", args={"cents": 1})
        assert rows(world.engine, world.namespace) == before
    ledger.happened("charge:1")
    world.fence.commit(owner, "by the owner")
    assert perform(world, ledger, lambda _: "d") == "by the owner"
    assert ledger.count() == 1


def test_f11_refused_duplicates_do_not_touch_an_owner_that_failed(world: World, ledger: Witness) -> None:
    world.put("failed")
    before = world.rows()
    for _ in range(3):
        with pytest.raises(IntentFailed):
            perform(world, ledger, lambda _: "b")
        assert world.rows() == before
    assert ledger.count() == 0
