"""abort and renew: what a holder may say about its own attempt."""

from __future__ import annotations

import pytest

from effectfence_pg import ClosureAborted, CommitConflict, EffectCert, Fresh, IntentFailed, LeaseLost, Replay
from tests.support.rows import one
from tests.support.world import World


def test_an_unknown_outcome_fences_the_intent(world: World) -> None:
    prepared = world.admit(domain="order:1")
    rolled = world.fence.abort(prepared, "connection reset after the request was sent")
    assert (rolled.intent, rolled.attempt, rolled.state, rolled.dependents) == ("charge:1", 1, "failed", ())
    row = world.effect()
    assert (row["state"], row["failure"], row["lease_expires_at"]) == ("failed", "outcome_unknown", None)
    assert row["reason"] == "connection reset after the request was sent"
    assert world.history()[-1] == (1, "in_flight", "failed", "outcome_unknown", "agent-a")
    assert world.seq("order:1") == 2
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request(domain="order:1"))


def test_a_known_absence_of_effect_makes_the_intent_runnable(world: World) -> None:
    prepared = world.admit()
    assert world.fence.abort(prepared, "refused by the validator", effect="none").state == "released"
    assert world.history()[-1] == (1, "in_flight", "released", "no_effect", "agent-a")
    assert isinstance(world.fence.prepare(world.request()), Fresh)


@pytest.mark.parametrize("ending", ["failed", "aborted_in_flight"])
def test_a_holder_may_still_say_that_nothing_happened(world: World, ending: str) -> None:
    prepared = world.put(ending)
    assert world.fence.abort(prepared, "never sent", effect="none").state == "released"
    assert world.moves()[-1] == (ending.removesuffix("_in_flight"), "released", "no_effect")


def test_after_a_takeover_a_holder_speaks_for_its_own_attempt_only(world: World) -> None:
    """The attempt before may have acted: the intent must not become runnable by the word of the second."""
    world.put("superseded")
    new = world.ticket("charge:1")
    assert new.attempt == 2
    assert world.fence.abort(new, "never sent", effect="none").state == "failed"
    assert world.moves()[-1] == ("in_flight", "failed", "outcome_unknown")
    assert world.fence.abort(new, "never sent", effect="none").state == "failed"
    with pytest.raises(IntentFailed):
        world.fence.prepare(world.request())


def test_an_executed_effect_is_rolled_back_and_never_released(world: World) -> None:
    for effect in ("unknown", "none"):
        prepared = world.hold(f"held {effect}")
        assert world.fence.abort(prepared, "wrong account", effect=effect).state == "aborted"
        row = world.effect(f"held {effect}")
        assert (row["state"], row["failure"], row["result"]) == ("aborted", "rolled_back", '"done"')
        assert world.moves(f"held {effect}")[-1] == ("executed", "aborted", "rolled_back")


def test_a_committed_effect_is_never_rolled_back(world: World) -> None:
    prepared = world.admit()
    certificate = world.fence.commit(prepared, "done")
    before = world.rows()
    for effect in ("unknown", "none"):
        with pytest.raises(CommitConflict) as refused:
            world.fence.abort(prepared, "changed my mind", effect=effect)
        assert refused.value.certificate == certificate
    assert world.rows() == before
    assert isinstance(world.fence.prepare(world.request()), Replay)


def test_a_recorded_result_is_not_made_undone_by_an_abort(world: World) -> None:
    prepared = world.put("aborted")
    before = world.rows()
    for effect in ("unknown", "none"):
        assert world.fence.abort(prepared, "never sent", effect=effect).state == "aborted"
    assert world.rows() == before


def test_who_is_superseded_or_released_is_told_and_what_it_said_is_kept(world: World) -> None:
    superseded = world.put("superseded", "taken over")
    released = world.put("released", "released")
    for prepared in (superseded, released):
        for _ in range(2):
            with pytest.raises(LeaseLost) as refused:
                world.fence.abort(prepared, "connection reset")
            assert refused.value.evidence_kept
        kept = [
            move
            for move in world.history(prepared.intent)
            if move[0] == prepared.attempt and move[3] == "late_evidence"
        ]
        assert len(kept) == 1, "said twice, kept once"
    assert world.fence.abort(released, "never sent", effect="none").state == "released"
    assert world.state("released") == "released"


def test_an_abort_that_was_said_twice_is_done_once(world: World) -> None:
    for state, effect in (("failed", "unknown"), ("released", "none"), ("aborted", "unknown")):
        prepared = world.put(state, state)
        before = world.rows()
        assert world.fence.abort(prepared, "again", effect=effect).state == state
        assert world.rows() == before


def test_an_aborted_holder_that_reports_gives_up_its_lease(world: World) -> None:
    prepared = world.put("aborted_in_flight")
    assert world.effect()["lease_expires_at"] is not None
    assert world.fence.abort(prepared, "stopped").state == "aborted"
    assert world.effect()["lease_expires_at"] is None
    assert world.moves()[-1] == ("aborted", "aborted", "reported")


def test_an_expired_holder_may_abort_as_long_as_nobody_fenced_it(world: World) -> None:
    prepared = world.put("expired")
    assert world.fence.abort(prepared, "never sent", effect="none").state == "released"


def test_a_renewal_extends_the_lease_by_its_length_from_now(world: World) -> None:
    prepared = world.admit(lease_seconds=90.0)
    world.edit("charge:1", lease_expires_at="2101-01-01T00:00:00Z")
    renewed = world.fence.renew(prepared)
    assert renewed.lease_expires_at.year == 2101, "a lease never gets shorter"
    world.expire()
    renewed = world.fence.renew(prepared)
    left = one(world.engine, "SELECT extract(epoch FROM :until - clock_timestamp())", until=renewed.lease_expires_at)
    assert 80 < left <= 90
    row = world.effect()
    assert (row["lease_expires_at"], row["renewed_at"] is not None) == (renewed.lease_expires_at, True)
    assert renewed.model_copy(update={"lease_expires_at": prepared.lease_expires_at}) == prepared
    assert isinstance(world.fence.commit(renewed, "done"), EffectCert)


def test_a_renewal_asks_for_no_more_than_was_admitted(world: World) -> None:
    prepared = world.admit(lease_seconds=90.0)
    world.expire()
    greedy = world.fence.renew(prepared.model_dump(mode="json") | {"lease_seconds": 86_400.0})
    left = one(world.engine, "SELECT extract(epoch FROM :until - clock_timestamp())", until=greedy.lease_expires_at)
    assert left <= 90


@pytest.mark.parametrize("state", ["failed", "released", "superseded", "executed", "committed"])
def test_a_holder_that_is_no_longer_in_flight_is_told_to_stop(world: World, state: str) -> None:
    prepared = world.put(state)
    before = world.rows()
    with pytest.raises(LeaseLost) as refused:
        world.fence.renew(prepared)
    assert (refused.value.attempt, refused.value.state) == (1, state)
    assert world.rows() == before


@pytest.mark.parametrize("state", ["aborted", "aborted_in_flight"])
def test_a_holder_that_was_rolled_back_is_told_so(world: World, state: str) -> None:
    prepared = world.put(state)
    before = world.rows()
    with pytest.raises(ClosureAborted):
        world.fence.renew(prepared)
    assert world.rows() == before


def test_a_swept_holder_learns_it_at_its_renewal(world: World) -> None:
    prepared = world.put("expired")
    world.fence.sweep()
    with pytest.raises(LeaseLost) as refused:
        world.fence.renew(prepared)
    assert refused.value.reason == "lease expired, outcome unknown"
