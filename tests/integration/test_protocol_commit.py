"""commit: the order of its checks, lost acknowledgements, conflicts and late completions. Nothing is ever lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from effectfence_pg import (
    CommitConflict,
    EffectCert,
    FenceConfig,
    MovedEntry,
    ReadSetStale,
    Replay,
    ResultNotRecordable,
    certificate_hash,
)
from tests.support.rows import all_of
from tests.support.world import World


def stored_result(world: World, intent: str = "charge:1") -> Any:
    text = world.effect(intent)["result"]
    return None if text is None else json.loads(text)


def test_a_commit_mints_a_certificate_of_what_was_admitted(world: World) -> None:
    prepared = world.admit(args={"cents": 4900, "é": [1.5, None]}, known_clock={"other": 3})
    certificate = world.fence.commit(prepared, {"receipt": "r-1"})
    assert isinstance(certificate, EffectCert)
    assert certificate.verify()
    assert certificate.hash == certificate_hash(
        intent="charge:1",
        parent=None,
        domain="of:charge:1",
        seq=1,
        tool="charge",
        args={"cents": 4900, "é": [1.5, None]},
        result={"receipt": "r-1"},
        vector_clock={"agent-a": 1, "other": 3},
        read_set=[],
        agent="agent-a",
    )
    assert (certificate.namespace, certificate.attempt) == (world.namespace, 1)
    assert world.moves() == [(None, "in_flight", "admitted"), ("in_flight", "committed", "committed")]
    row = world.effect()
    assert (row["state"], row["lease_expires_at"], row["failure"]) == ("committed", None, None)


@pytest.mark.parametrize(
    "result", [None, 0, "", [], {}, False, {"n": 2**80, "f": 1e-7, "t": "\x00\x1f\u2028😀"}, [[[1]]]]
)
@pytest.mark.parametrize("rests", [False, True], ids=["plain", "decided"])
def test_any_json_value_is_a_result_and_comes_back_equal(world: World, result: Any, rests: bool) -> None:
    request = world.request(read_set=world.fence.observe("stock") if rests else ())
    prepared = world.fence.prepare(request).prepared
    certificate = world.fence.commit(prepared, result)
    replay = world.fence.prepare(request)
    assert isinstance(replay, Replay)
    assert replay.certificate == certificate
    assert replay.certificate.result == result
    assert replay.certificate.verify()


def test_a_lost_acknowledgement_gets_the_same_certificate(world: World) -> None:
    prepared = world.admit()
    first = world.fence.commit(prepared, {"a": 1, "b": 2})
    before = world.rows()
    assert world.fence.commit(prepared, {"b": 2, "a": 1}) == first
    assert world.fence.commit(prepared.model_dump(mode="json"), {"a": 1, "b": 2}) == first
    assert world.rows() == before


def test_another_result_after_the_commit_is_a_conflict_and_the_first_is_kept(world: World) -> None:
    prepared = world.admit()
    first = world.fence.commit(prepared, "first")
    before = world.rows()
    with pytest.raises(CommitConflict) as refused:
        world.fence.commit(prepared, "second")
    assert refused.value.certificate == first
    assert world.rows() == before


def test_an_expired_lease_that_nobody_fenced_does_not_stop_its_holder(world: World) -> None:
    prepared = world.put("expired")
    certificate = world.fence.commit(prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert world.moves()[-1] == ("in_flight", "committed", "committed")


@pytest.mark.parametrize("fenced_by", ["sweep", "duplicate", "abort"])
def test_a_late_completion_settles_what_nobody_reconciled(world: World, fenced_by: str) -> None:
    prepared = world.admit(domain="order:1")
    if fenced_by == "abort":
        world.fence.abort(prepared, "timeout")
    else:
        world.expire()
        if fenced_by == "sweep":
            world.fence.sweep()
        else:
            with pytest.raises(Exception, match="lease expired"):
                world.fence.prepare(world.request(domain="order:1"))
    assert world.state() == "failed"
    seq = world.seq("order:1")
    certificate = world.fence.commit(prepared, "done after all")
    assert isinstance(certificate, EffectCert)
    assert certificate.seq == prepared.seq
    assert world.moves()[-1] == ("failed", "committed", "late_completion")
    assert world.seq("order:1") == seq + 1, "who read the domain while it was unknown must not go on"
    row = world.effect()
    assert (row["failure"], row["reason"]) == (None, None)


def test_a_read_set_that_moved_while_the_tool_ran_fails_with_the_result_on_record(world: World) -> None:
    prepared = world.admit(read_set=world.fence.observe("stock", "still"), domain="order:1")
    world.commit("restock", domain="stock")
    seq = world.seq("order:1")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.commit(prepared, {"receipt": 7})
    error = refused.value
    assert error.effect_ran
    assert error.entries == (MovedEntry("stock", 0, 1),)
    assert "did run" in error.advice
    assert (world.state(), stored_result(world)) == ("failed", {"receipt": 7})
    assert world.moves()[-1] == ("in_flight", "failed", "read_set_stale")
    assert world.seq("order:1") == seq + 1


def test_a_failed_effect_with_a_result_repeats_its_verdict(world: World) -> None:
    prepared = world.admit(read_set=world.fence.observe("stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale):
        world.fence.commit(prepared, "done")
    before = world.rows()
    with pytest.raises(ReadSetStale) as again:
        world.fence.commit(prepared, "done")
    assert again.value.effect_ran
    assert again.value.entries == (MovedEntry("stock", 0, 1),)
    with pytest.raises(CommitConflict):
        world.fence.commit(prepared, "another")
    assert world.rows() == before


def test_a_request_may_ask_to_be_certified_over_a_moved_read_set(world: World) -> None:
    prepared = world.admit(read_set=world.fence.observe("stock"), on_stale="certify")
    world.commit("restock", domain="stock")
    certificate = world.fence.commit(prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert certificate.wire()["read_set"] == [{"domain": "stock", "seq": 0}]


def test_an_own_domain_entry_is_compared_with_the_own_number(world: World) -> None:
    prepared = world.admit(domain="order:1", read_set=world.fence.observe("order:1"))
    assert isinstance(world.fence.commit(prepared, "done"), EffectCert), "its own number moved the domain, nobody else"
    overtaken = world.admit("charge:2", domain="order:1", expected_seq=1)
    world.admit("neighbour", domain="order:1")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.commit(overtaken, "done")
    assert refused.value.entries == (MovedEntry("order:1", 1, 3),)


def test_a_result_that_cannot_be_recorded_leaves_the_effect_in_flight(world: World) -> None:
    small = World(world.engine, world.namespace, FenceConfig(max_result_bytes=100))
    prepared = small.admit()
    before = world.rows()
    for result in (float("nan"), {"when": object()}, "x" * 200, "\ud800", {1: 2}):
        with pytest.raises(ResultNotRecordable) as refused:
            small.fence.commit(prepared, result)
        assert refused.value.intent == "charge:1"
    assert world.rows() == before
    assert isinstance(small.fence.commit(prepared, "it did run"), EffectCert)


def test_a_certificate_tells_no_more_than_was_stored_at_admission(world: World) -> None:
    """What a ticket says is never hashed: fields that are not compared cannot forge a certificate either."""
    prepared = world.admit(read_set=world.fence.observe("stock"))
    forged = prepared.model_dump(mode="json") | {"vector_clock": {"agent-a": 99}, "read_set": [], "parent": "1" * 64}
    certificate = world.fence.commit(forged, "done")
    assert certificate.vector_clock.root == {"agent-a": 1}
    assert certificate.wire()["read_set"] == [{"domain": "stock", "seq": 0}]
    assert certificate.parent is None
    assert all_of(
        world.engine,
        "SELECT hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds "
        "FROM effectfence.certificate_audit WHERE namespace = :n",
        n=world.namespace,
    ) == [True]


def test_a_ticket_that_forgot_its_read_set_still_hears_what_moved(world: World) -> None:
    prepared = world.admit(read_set=world.fence.observe("still", "stock"))
    world.commit("restock", domain="stock")
    with pytest.raises(ReadSetStale) as refused:
        world.fence.commit(prepared.model_dump(mode="json") | {"read_set": []}, "done")
    assert refused.value.entries == (MovedEntry("stock", 0, 1),)
