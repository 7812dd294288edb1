"""What the end of an effect does to everything that observed it: aborted in the same transaction, with its cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effectfence_pg import ClosureAborted, EffectCert, IntentFailed, LeaseLost, PreparedEffect, ReadSetStale
from tests.support.rows import all_of
from tests.support.world import World


def causes(world: World) -> dict[str, tuple[str, int, str]]:
    """For every effect aborted by a cascade: the origin's intent and attempt, and who acted."""
    found = all_of(
        world.engine,
        "SELECT e.intent, o.intent, t.origin_attempt, t.actor FROM effectfence.transitions t "
        "JOIN effectfence.effects e USING (namespace, intent_key, attempt) "
        "JOIN effectfence.intents o ON o.namespace = t.namespace AND o.intent_key = t.origin_key "
        "WHERE t.namespace = :n AND t.cause = 'cascade'",
        n=world.namespace,
    )
    return {intent: (origin, attempt, actor) for intent, origin, attempt, actor in found}


def chain(world: World, **more: object) -> dict[str, PreparedEffect]:
    """`base` is executed; `held` observed it and is executed; `flying` observed `held` and is in flight."""
    base = world.hold("base", domain="d:base", agent="agent-base", **more)
    held = world.admit("held", observes=["base"], domain="d:held")
    world.fence.commit(held, "done", closure="hold")
    flying = world.admit("flying", observes=["held"], domain="d:flying")
    return {"base": base, "held": held, "flying": flying}


def test_an_abort_takes_every_dependent_with_it_in_the_same_transaction(world: World) -> None:
    tickets = chain(world)
    rolled = world.fence.abort(tickets["base"], "wrong account")
    assert rolled.state == "aborted"
    assert {(b.intent, b.attempt, b.state) for b in rolled.dependents} == {
        ("held", 1, "executed"),
        ("flying", 1, "in_flight"),
    }
    assert [world.state(name) for name in tickets] == ["aborted"] * 3
    origin = ("base", 1, "agent-base")
    assert causes(world) == {"held": origin, "flying": origin}
    assert (
        len(
            set(
                all_of(
                    world.engine,
                    "SELECT t.xmin::text FROM effectfence.transitions t WHERE t.namespace = :n AND t.to_state = 'aborted'",
                    n=world.namespace,
                )
            )
        )
        == 1
    )


def test_a_cascade_advances_the_domain_of_each_dependent(world: World) -> None:
    tickets = chain(world)
    before = {name: world.seq(f"d:{name}") for name in tickets}
    world.fence.abort(tickets["base"], "wrong account")
    assert {name: world.seq(f"d:{name}") - seq for name, seq in before.items()} == {"base": 1, "held": 1, "flying": 1}


def test_dependents_in_one_domain_each_take_a_number_of_it(world: World) -> None:
    base = world.hold("base")
    for n in range(3):
        world.admit(f"reader:{n}", observes=["base"], domain="order:1")
    world.fence.abort(base, "wrong account")
    assert world.seq("order:1") == 6


def test_a_diamond_falls_once(world: World) -> None:
    base = world.hold("base")
    for name in ("left", "right"):
        world.fence.commit(world.admit(name, observes=["base"]), "done", closure="hold")
    world.admit("bottom", observes=["left", "right"])
    rolled = world.fence.abort(base, "wrong account")
    assert sorted(b.intent for b in rolled.dependents) == ["bottom", "left", "right"]
    assert world.moves("bottom") == [(None, "in_flight", "admitted"), ("in_flight", "aborted", "cascade")]


def test_a_dependent_in_flight_is_told_to_stop_and_keeps_its_lease(world: World) -> None:
    tickets = chain(world)
    world.fence.abort(tickets["base"], "wrong account")
    assert world.effect("flying")["lease_expires_at"] == tickets["flying"].lease_expires_at
    with pytest.raises(ClosureAborted):
        world.fence.renew(tickets["flying"])
    with pytest.raises(ClosureAborted):
        world.fence.commit(tickets["flying"], "it did run")
    assert world.effect("flying")["result"] == '"it did run"'


def test_a_fenced_dependent_falls_as_well(world: World) -> None:
    tickets = chain(world)
    world.fence.abort(tickets["flying"], "connection reset")
    assert world.state("flying") == "failed"
    world.fence.abort(tickets["base"], "wrong account")
    assert world.moves("flying")[-1] == ("failed", "aborted", "cascade")


def test_what_is_released_superseded_or_committed_does_not_fall(world: World) -> None:
    base = world.hold("base")
    world.fence.abort(world.admit("released", observes=["base"]), "never sent", effect="none")
    world.admit("taken over", observes=["base"], on_lease_expiry="takeover")
    world.expire("taken over")
    world.admit("taken over", on_lease_expiry="takeover")
    world.commit("unrelated")
    rolled = world.fence.abort(base, "wrong account")
    assert rolled.dependents == ()
    assert world.state("released") == "released"
    assert (world.state("taken over", 1), world.state("taken over", 2)) == ("superseded", "in_flight")
    assert world.state("unrelated") == "committed"


def ends(world: World, tickets: dict[str, PreparedEffect]) -> dict[str, Callable[[], object]]:
    def expired() -> None:
        world.edit("held", state="in_flight", result=None, lease_expires_at="2001-01-01T00:00:00Z")
        world.fence.sweep()

    def taken_over() -> None:
        world.edit(
            "held", state="in_flight", result=None, lease_expires_at="2001-01-01T00:00:00Z", on_lease_expiry="takeover"
        )
        world.admit("held", domain="d:held", observes=["base"])

    def stale() -> None:
        world.edit("held", state="in_flight", result=None, lease_expires_at="2101-01-01T00:00:00Z")
        world.edit("held", read_set='[{"domain":"gone","seq":7}]', read_keys=[b"\0" * 32], read_seqs=[7])
        with pytest.raises(ReadSetStale):
            world.fence.commit(tickets["held"], "done")

    def failed() -> None:
        world.edit("held", state="in_flight", result=None, lease_expires_at="2101-01-01T00:00:00Z")
        world.fence.abort(tickets["held"], "connection reset")

    def released() -> None:
        world.edit("held", state="in_flight", result=None, lease_expires_at="2101-01-01T00:00:00Z")
        world.fence.abort(tickets["held"], "never sent", effect="none")

    def late_evidence() -> None:
        world.edit("held", state="released", result=None)
        with pytest.raises(LeaseLost):
            world.fence.commit(tickets["held"], "it did happen")

    def reconciled() -> None:
        world.edit("held", state="failed", result=None)
        world.fence.clear("held", attempt=1, basis="holder_dead", evidence="gone", operator="op")

    def compensated() -> None:
        world.edit("held", state="aborted")
        world.fence.reconcile("held", attempt=1, outcome="compensated", evidence="refunded", operator="op")

    return {name: act for name, act in locals().items() if callable(act)}


@pytest.mark.parametrize(
    "end", ["expired", "taken_over", "stale", "failed", "released", "late_evidence", "reconciled", "compensated"]
)
def test_every_exit_to_a_dead_state_cascades_whatever_caused_it(world: World, end: str) -> None:
    """A race can leave a dependent of an effect that is still undecided: none of them outlives its end."""
    tickets = chain(world)
    ends(world, tickets)[end]()
    assert world.state("held", 1) in {"failed", "released", "superseded"}
    assert world.state("flying") == "aborted"
    assert causes(world)["flying"][:2] == ("held", 1)
    assert world.state("base") == "executed", "a cascade goes to the dependents and not to what was observed"


def test_a_dead_closure_found_at_commit_cascades_too(world: World) -> None:
    tickets = chain(world)
    world.edit("base", state="failed", failure="lease_expired")
    with pytest.raises(ClosureAborted) as refused:
        world.fence.commit(tickets["held"], "done")
    assert [(b.intent, b.state) for b in refused.value.blockers] == [("base", "failed")]
    assert (world.state("held"), world.state("flying")) == ("aborted", "aborted")
    assert causes(world)["flying"][:2] == ("held", 1)


@pytest.mark.parametrize("dead", ["failed", "aborted", "released", "superseded"])
def test_all_four_kinds_of_dead_members_count_alike(world: World, dead: str) -> None:
    tickets = chain(world)
    world.edit("base", state=dead)
    with pytest.raises(ClosureAborted) as refused:
        world.fence.commit(tickets["flying"], "done")
    assert ("base", dead) in [(b.intent, b.state) for b in refused.value.blockers]


def test_a_chain_commits_in_the_order_of_its_dependencies(world: World) -> None:
    tickets = chain(world)
    world.fence.commit(tickets["flying"], "done", closure="hold")
    blockers = {b.intent for b in world.status("flying").blockers}
    assert blockers == {"base", "held"}
    for name in ("base", "held", "flying"):
        assert isinstance(world.fence.commit(tickets[name], "done"), EffectCert)
    assert causes(world) == {}


def test_the_walk_stops_at_committed_effects(world: World) -> None:
    tickets = chain(world)
    world.fence.commit(tickets["base"], "done")
    world.fence.commit(tickets["held"], "done")
    world.edit("base", state="aborted")
    assert isinstance(world.fence.commit(tickets["flying"], "done"), EffectCert), "held is committed: its past is past"


def test_a_fallen_intent_is_fenced_until_somebody_resolves_it(world: World) -> None:
    tickets = chain(world)
    world.fence.abort(tickets["base"], "wrong account")
    with pytest.raises(IntentFailed) as refused:
        world.fence.prepare(world.request("held", domain="d:held"))
    assert (refused.value.state, refused.value.reason) == ("aborted", "something it observed was rolled back")
