"""settle: what callers may no longer be alive to do. It commits what was asked for, aborts what fell, fences what expired."""

from __future__ import annotations

import pytest

from effectfence_pg import ClosurePending, EffectCert, Settled, plans
from tests.support.rows import all_of
from tests.support.speculation import broken, decided, ran, states
from tests.support.world import World


def asked(world: World, intent: str, **more: object) -> None:
    """An effect whose holder asked for its commit, and went away."""
    with pytest.raises(ClosurePending):
        world.fence.commit(world.admit(intent, **more), "done")


def test_it_commits_what_was_asked_for_once_the_closure_is_committed(world: World) -> None:
    ran(world, "base", branch="plan")
    asked(world, "waits", observes=["base"])
    ran(world, "held", observes=["base"])
    assert world.fence.settle() == Settled()
    assert states(world, "waits", "held") == {"waits": "executed", "held": "executed"}
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=1)
    assert states(world, "waits", "held") == {"waits": "committed", "held": "executed"}
    assert world.history("waits")[-1] == (1, "executed", "committed", "settled", "effectfence")
    certificate = world.status("waits").certificate
    assert isinstance(certificate, EffectCert)
    assert (certificate.result, certificate.verify()) == ("done", True)


def test_a_chain_is_settled_link_by_link_in_one_call(world: World) -> None:
    ran(world, "link:0", branch="plan")
    for number in range(1, 8):
        asked(world, f"link:{number}", observes=[f"link:{number - 1}"])
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=7)
    assert broken(world.engine, world.namespace) == []


def test_a_chain_is_settled_as_far_as_it_was_asked_for(world: World) -> None:
    ran(world, "base", branch="plan")
    asked(world, "first", observes=["base"])
    ran(world, "second", observes=["first"])
    asked(world, "third", observes=["second"])
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=1)
    assert states(world, "second", "third") == {"second": "executed", "third": "executed"}
    assert world.fence.promote(intent="second").effects == 1
    assert world.fence.settle() == Settled(committed=1)


def test_what_belongs_to_an_open_branch_is_left_to_its_branch(world: World) -> None:
    world.fence.commit(world.admit("member", branch="plan"), "done")
    assert world.effect("member")["commit_asked"]
    assert world.fence.settle() == Settled()
    assert world.state("member") == "executed"


@pytest.mark.parametrize("was", ["asked for", "held"])
@pytest.mark.parametrize("dead", ["failed", "aborted", "released", "superseded"])
def test_what_has_a_dead_member_is_aborted_with_its_dependents(world: World, was: str, dead: str) -> None:
    """No verb leaves such an effect; a restored database may."""
    ran(world, "base", branch="plan")
    if was == "held":
        ran(world, "mine", observes=["base"])
    else:
        asked(world, "mine", observes=["base"])
    ran(world, "top", observes=["mine"])
    world.edit("base", state=dead)
    assert world.fence.settle() == Settled(aborted=2)
    assert states(world, "mine", "top") == {"mine": "aborted", "top": "aborted"}
    assert world.history("mine")[-1] == (1, "executed", "aborted", "closure_dead", "effectfence")
    assert world.fence.settle() == Settled()


def test_it_fences_expired_leases(world: World) -> None:
    decided(world, "base")
    world.admit("slow", observes=["base"])
    world.admit("running", observes=["base"])
    world.expire("slow")
    assert world.fence.settle() == Settled(fenced=1)
    assert states(world, "slow", "running", "base") == {"slow": "failed", "running": "in_flight", "base": "executed"}
    assert world.history("slow")[-1][2:] == ("failed", "lease_expired", "effectfence")


def test_doing_it_again_changes_nothing(world: World) -> None:
    ran(world, "base", branch="plan")
    asked(world, "waits", observes=["base"])
    world.put("expired", "slow")
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(fenced=1, committed=1)
    before = world.rows()
    assert world.fence.settle() == Settled()
    assert world.rows() == before


def test_the_read_set_of_what_ran_is_not_checked_again(world: World) -> None:
    ran(world, "base", branch="plan")
    asked(world, "waits", observes=["base"], read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=1)


def test_any_number_is_settled_a_batch_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "BATCH", 2)
    ran(world, "base", branch="plan")
    for number in range(5):
        asked(world, f"waits:{number}", observes=["base"])
        world.put("expired", f"slow:{number}")
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(fenced=5, committed=5)
    wrote = "SELECT count(DISTINCT xmin::text) FROM effectfence.certificates WHERE namespace = :n AND attempt = 1"
    assert all_of(world.engine, wrote, n=world.namespace) == [1 + 3]


def test_only_its_own_namespace_is_settled(world: World) -> None:
    other = World(world.engine, world.namespace + "-b")
    for one_world in (world, other):
        ran(one_world, "base", branch="plan")
        asked(one_world, "waits", observes=["base"])
        one_world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=1)
    assert (world.state("waits"), other.state("waits")) == ("committed", "executed")


def test_what_was_reconciled_to_wait_is_settled_too(world: World) -> None:
    """An operator found out that it happened; nobody holds a ticket any more."""
    ran(world, "base", branch="plan")
    world.admit("slow", observes=["base"])
    world.expire("slow")
    status = world.fence.reconcile("slow", attempt=1, outcome="happened", result=7, evidence=1, operator="olga")
    assert status.state == "executed"
    world.fence.promote(branch="plan")
    assert world.fence.settle() == Settled(committed=1)
