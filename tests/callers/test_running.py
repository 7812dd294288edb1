"""run: the tool is called once, its outcome is on record, and what an error proves is decided by who declared it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg import (
    AsyncFence,
    CurrentEffect,
    DidNotHappen,
    FenceConfig,
    Happened,
    IntentFailed,
    IntentInFlight,
    InvalidRequest,
    Ran,
    ReadSetStale,
    ResultNotReplayable,
    current_effect,
)
from tests.support.witness import Witness
from tests.support.world import World

Runner = Callable[..., Ran[Any]]


class NeverSentError(Exception):
    pass


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


@pytest.fixture(params=["run", "arun", "async"])
def run(request: pytest.FixtureRequest, world: World) -> Runner:
    """Every way to run: blocking, a coroutine through a blocking fence, a coroutine through an asynchronous one."""

    def run(asked: Any, tool: Callable[..., Any], **more: Any) -> Ran[Any]:
        if request.param == "run":
            return world.fence.run(asked, tool, **more)

        async def awaited(effect: CurrentEffect) -> Any:
            await asyncio.sleep(0)
            return tool(effect) if tool.__code__.co_argcount else tool()

        async def main() -> Ran[Any]:
            if request.param == "arun":
                return await world.fence.arun(asked, awaited, **more)
            url = world.engine.url.render_as_string(hide_password=False)
            async with AsyncFence(url, namespace=world.namespace) as fence:
                return await fence.run(asked, awaited, **more)

        return asyncio.run(main())

    return run


def test_a_tool_runs_once_and_later_calls_replay(world: World, run: Runner, ledger: Witness) -> None:
    def tool() -> dict[str, int]:
        ledger.happened("charge:1")
        return {"receipt": 7}

    first, second = run(world.request(), tool), run(world.request(), tool)
    assert (first.result, first.replayed) == ({"receipt": 7}, False)
    assert (second.result, second.replayed) == ({"receipt": 7}, True)
    assert first.certificate == second.certificate
    assert ledger.count() == 1


def test_the_tool_knows_its_effect(world: World, run: Runner) -> None:
    def tool(effect: CurrentEffect) -> str:
        assert effect is current_effect()
        assert (effect.intent, effect.attempt, effect.args) == ("charge:1", 1, {"cents": 4900})
        assert effect.seq == world.effect()["seq"]
        assert effect.lease_lost is None
        return effect.idempotency_key

    first = run(world.request(), tool)
    assert len(first.result) == 64
    with pytest.raises(LookupError):
        current_effect()


def test_every_attempt_of_an_intent_has_the_same_key_and_a_higher_number(world: World, run: Runner) -> None:
    seen: list[tuple[str, int, int]] = []

    def tool() -> str:
        effect = current_effect()
        seen.append((effect.idempotency_key, effect.attempt, effect.seq))
        if effect.attempt == 1:
            raise NeverSentError
        return "done"

    with pytest.raises(NeverSentError):
        run(world.request(), tool, no_effect=NeverSentError)
    assert run(world.request(), tool).result == "done"
    (key, first, low), (again, second, high) = seen
    assert key == again
    assert (first, second) == (1, 2)
    assert high > low


def test_keys_of_different_intents_and_tenants_differ(world: World) -> None:
    from effectfence_pg.running.current import idempotency_key

    keys = {idempotency_key(*names) for names in [("a", "b:c"), ("a:b", "c"), ("a", "b"), ("b", "a")]}
    assert len(keys) == 4


def test_an_error_leaves_the_outcome_unknown_and_its_class_on_record(
    world: World, run: Runner, ledger: Witness
) -> None:
    def tool() -> None:
        ledger.happened("charge:1")
        raise TimeoutError("a secret in the message")

    with pytest.raises(TimeoutError):
        run(world.request(), tool)
    with pytest.raises(IntentFailed) as refused:
        run(world.request(), tool)
    assert refused.value.reason == "TimeoutError [timeout]: outcome unknown"
    assert ledger.count() == 1


@pytest.mark.parametrize(
    "no_effect", [NeverSentError, (KeyError, NeverSentError), lambda error: "not sent" in str(error)]
)
def test_an_error_that_is_declared_as_no_effect_releases_the_intent(
    world: World, run: Runner, ledger: Witness, no_effect: Any
) -> None:
    def tool() -> str:
        if current_effect().attempt == 1:
            raise NeverSentError("not sent")
        ledger.happened("charge:1")
        return "done"

    with pytest.raises(NeverSentError):
        run(world.request(), tool, no_effect=no_effect)
    assert world.state() == "released"
    assert "NeverSentError [other]: declared as no effect" in world.status().reason  # type: ignore[operator]
    assert run(world.request(), tool).result == "done"
    assert ledger.count() == 1


def test_a_predicate_that_fails_declares_nothing(world: World, run: Runner) -> None:
    def tool() -> None:
        raise NeverSentError

    with pytest.raises(NeverSentError):
        run(world.request(), tool, no_effect=lambda error: error.nothing)
    assert world.state() == "failed"


def test_a_refusal_is_raised_before_the_tool_is_called(world: World, run: Runner, ledger: Witness) -> None:
    world.admit()
    before = world.rows()
    with pytest.raises(IntentInFlight):
        run(world.request(), lambda: ledger.happened("charge:1"))
    with pytest.raises(InvalidRequest):
        run({"intent": ""}, lambda: ledger.happened("charge:1"))
    assert world.rows() == before
    assert ledger.count() == 0


def test_a_tool_that_ran_while_its_read_set_moved_is_on_record(world: World, run: Runner) -> None:
    read = world.fence.observe("stock")

    def tool() -> str:
        world.commit("restock", domain="stock")
        return "sold"

    with pytest.raises(ReadSetStale) as refused:
        run(world.request(read_set=read), tool)
    assert refused.value.effect_ran
    assert world.effect()["result"] == '"sold"'


class Anything:
    pass


BAD = {
    "lone surrogate": lambda: "\ud800",
    "nan": lambda: math.nan,
    "infinity": lambda: {"deep": [math.inf]},
    "bytes": lambda: b"\xff",
    "a custom object": Anything,
    "a generator": lambda: (n for n in range(3)),
    "nested without end": lambda: __import__("functools").reduce(lambda deep, _: [deep], range(500), []),
    "beyond the limit": lambda: "x" * 3_000_000,
}


@pytest.mark.parametrize("case", BAD)
def test_f21_a_result_that_cannot_be_recorded_completes_the_intent_all_the_same(
    engine: Any, namespace: str, ledger: Witness, case: str
) -> None:
    world = World(engine, namespace, FenceConfig(max_result_bytes=2_000_000))
    made: list[Any] = []

    def tool() -> Any:
        ledger.happened("charge:1")
        made.append(BAD[case]())
        return made[0]

    assert world.fence.run(world.request(), tool).result is made[0]
    assert world.state() == "committed"
    with pytest.raises(ResultNotReplayable) as told:
        world.fence.run(world.request(), tool)
    assert told.value.reason
    assert ledger.count() == 1


GOOD = {
    "U+0000": "a\u0000b",
    "a 30-level nest": __import__("functools").reduce(lambda deep, _: {"d": [deep]}, range(30), "end"),
    "3 MB": "é" * 1_500_000,
    "null": None,
}


@pytest.mark.parametrize("case", GOOD)
def test_f21_what_json_can_hold_comes_back_equal(world: World, run: Runner, ledger: Witness, case: str) -> None:
    def tool() -> Any:
        ledger.happened("charge:1")
        return GOOD[case]

    assert run(world.request(), tool).result == GOOD[case]
    assert run(world.request(), tool).result == GOOD[case]
    assert ledger.count() == 1


def unheard_of(world: World, **more: Any) -> Any:
    """A request whose first attempt was never heard of again."""
    request = world.request(on_lease_expiry="verify", **more)
    world.admit_request(request)
    world.expire()
    return request


def test_what_the_downstream_system_has_is_the_result(world: World, run: Runner, ledger: Witness) -> None:
    asked: list[tuple[str, int, str]] = []

    def verify(effect: CurrentEffect) -> Happened:
        asked.append((effect.intent, effect.attempt, effect.idempotency_key))
        assert world.state() == "failed"
        return Happened({"receipt": 7}, evidence="GET /charges?key=...")

    ran = run(unheard_of(world), lambda: ledger.happened("charge:1"), verify=verify)
    assert (ran.result, ran.replayed) == ({"receipt": 7}, True)
    assert [(intent, attempt) for intent, attempt, _ in asked] == [("charge:1", 1)]
    assert ledger.count() == 0
    assert world.moves()[-1] == ("failed", "committed", "reconciled_happened")


def test_what_happened_without_a_result_is_done_as_well(world: World, run: Runner) -> None:
    assert run(unheard_of(world), lambda: "again", verify=lambda _: Happened()).result is None


def test_what_is_absent_and_fenced_downstream_runs_once_more(world: World, run: Runner, ledger: Witness) -> None:
    def tool() -> str:
        ledger.happened("charge:1")
        return "done"

    ran = run(unheard_of(world), tool, verify=lambda _: DidNotHappen())
    assert (ran.result, ran.replayed, ledger.count()) == ("done", False, 1)
    assert world.state(attempt=1) == "released"


@pytest.mark.parametrize("answer", [None, True, "happened"])
def test_a_hook_that_cannot_tell_leaves_the_outcome_unknown(
    world: World, run: Runner, ledger: Witness, answer: Any
) -> None:
    with pytest.raises(IntentFailed) as refused:
        run(unheard_of(world), lambda: ledger.happened("charge:1"), verify=lambda _: answer)
    assert refused.value.verifiable
    assert (world.state(), ledger.count()) == ("failed", 0)


def test_the_policy_is_that_of_the_admitted_request_and_not_of_the_duplicate(world: World, run: Runner) -> None:
    world.admit()
    world.expire()
    with pytest.raises(IntentFailed) as refused:
        run(world.request(on_lease_expiry="verify"), lambda: "again", verify=lambda _: DidNotHappen())
    assert not refused.value.verifiable


def test_an_attempt_that_failed_with_an_error_is_not_verified(world: World, run: Runner) -> None:
    prepared = world.admit(on_lease_expiry="verify")
    world.fence.abort(prepared, "connection reset")
    with pytest.raises(IntentFailed):
        run(world.request(on_lease_expiry="verify"), lambda: "again", verify=lambda _: pytest.fail("asked"))


def test_whoever_brings_a_verify_hook_is_asked_whatever_the_request_left_open(
    world: World, run: Runner, ledger: Witness
) -> None:
    def dies() -> None:
        raise SystemExit

    def told(effect: CurrentEffect) -> Happened:
        ledger.happened(effect.intent)
        return Happened("found")

    with pytest.raises(SystemExit):
        run(world.request(), dies, verify=told)
    assert world.effect("charge:1")["on_lease_expiry"] == "verify"
    # It could not even report that.
    over = datetime(2026, 1, 1, tzinfo=UTC)
    world.edit("charge:1", state="in_flight", failure=None, reason=None, lease_expires_at=over)
    assert run(world.request(), lambda: pytest.fail("ran again"), verify=told).result == "found"
    assert ledger.count() == 1


@pytest.mark.parametrize(
    ("more", "verify", "reason"),
    [
        ({"on_lease_expiry": "fence"}, lambda _: None, "on_lease_expiry='fence'"),
        ({"on_lease_expiry": "takeover"}, lambda _: None, "on_lease_expiry='takeover'"),
        ({}, "a hook", "cannot be called"),
    ],
)
def test_a_verify_hook_that_would_never_be_asked_is_refused_before_anything_is_admitted(
    world: World, run: Runner, more: dict[str, str], verify: Any, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        run(world.request(**more), lambda: pytest.fail("ran"), verify=verify)
    assert refused.value.field == "verify"
    fenced = world.fence.fenced(intent="charge:2", verify=verify, **more)(lambda: pytest.fail("ran"))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=reason):
        fenced()
    assert all(found == [] for found in world.rows().values())


def test_what_somebody_else_found_out_meanwhile_counts(world: World, run: Runner) -> None:
    def verify(effect: CurrentEffect) -> DidNotHappen:
        world.fence.reconcile(
            effect.intent, attempt=1, outcome="happened", result="found", evidence="seen", operator="kim"
        )
        return DidNotHappen()

    ran = run(unheard_of(world), lambda: "again", verify=verify)
    assert (ran.result, ran.replayed) == ("found", True)


def test_a_run_that_is_replayed_leaves_no_trace(world: World, run: Runner) -> None:
    run(world.request(), lambda: "done")
    before = world.rows()
    run(world.request(), lambda: "done")
    assert world.rows() == before
