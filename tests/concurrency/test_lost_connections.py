"""A connection dies before the COMMIT reaches the server, or after the server committed and before the answer arrives.

Either way the caller gets what it would have got, and what is stored is what one undisturbed call stores: a call recognises
its own earlier success, and never conflicts with itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import DomainRace, EffectCert, Fence, FenceConfig, FenceError, Fresh, IntentFailed
from tests.support.proxy import Cut, Proxy
from tests.support.racing import Race, await_waiting, claim_gate
from tests.support.rows import all_of, one
from tests.support.speculation import UNDO, ran
from tests.support.world import World

Call = Callable[[Fence], Any]
Case = Callable[[World], Call]

EVIDENCE = {"evidence": "looked it up", "operator": "olga"}


def prepare(world: World, **more: Any) -> Call:
    return lambda fence: fence.prepare(world.request(**more))


def admission(world: World) -> Call:
    return prepare(world)


def admission_that_rests_on_something(world: World) -> Call:
    certificate = world.commit("read", domain="stock")
    return prepare(world, parent=certificate.hash, read_set=world.fence.observe("stock"), observes=["read"])


def admission_after_a_release(world: World) -> Call:
    world.put("released")
    return prepare(world)


def takeover(world: World) -> Call:
    world.put("expired", on_lease_expiry="takeover")
    return prepare(world)


def refusal_that_fences_an_expired_lease(world: World) -> Call:
    world.put("expired")
    return prepare(world)


def commit(world: World) -> Call:
    prepared = world.admit()
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def commit_that_rests_on_something(world: World) -> Call:
    world.commit("read", domain="stock")
    prepared = world.admit(read_set=world.fence.observe("stock", "of:charge:1"))
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def commit_that_is_held(world: World) -> Call:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    return lambda fence: fence.commit(prepared, {"receipt": 7}, closure="hold")


def commit_of_a_stale_read_set(world: World) -> Call:
    prepared = world.admit(read_set=world.fence.observe("stock", "of:charge:1"))
    world.commit("restock", domain="stock")
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def late_completion(world: World) -> Call:
    prepared = world.put("expired")
    world.fence.sweep()
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def late_evidence_of_a_released_attempt(world: World) -> Call:
    prepared = world.put("released")
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def late_evidence_of_a_replaced_attempt(world: World) -> Call:
    prepared = world.put("superseded")
    return lambda fence: fence.commit(prepared, {"receipt": 7})


def abort(world: World) -> Call:
    world_ticket = world.admit()
    return lambda fence: fence.abort(world_ticket, "it went wrong")


def abort_without_effect(world: World) -> Call:
    prepared = world.admit()
    return lambda fence: fence.abort(prepared, "never sent", effect="none")


def abort_with_dependents(world: World) -> Call:
    prepared = world.hold("base")
    world.hold("middle", observes=["base"])
    world.admit(observes=["middle", "base"])
    return lambda fence: fence.abort(prepared, "rolled back")


def reconcile_happened(world: World) -> Call:
    world.put("failed")
    return lambda fence: fence.reconcile("charge:1", attempt=1, outcome="happened", result="done", **EVIDENCE)


def reconcile_did_not_happen(world: World) -> Call:
    world.put("failed")
    return lambda fence: fence.clear("charge:1", attempt=1, basis="holder_dead", **EVIDENCE)


def reconcile_compensated(world: World) -> Call:
    world.put("aborted")
    return lambda fence: fence.reconcile("charge:1", attempt=1, outcome="compensated", **EVIDENCE)


def reconcile_of_an_expired_lease(world: World) -> Call:
    world.put("expired")
    return lambda fence: fence.clear("charge:1", attempt=1, basis="holder_dead", **EVIDENCE)


def reserve(world: World) -> Call:
    world.commit()
    return lambda fence: fence.reserve("of:charge:1", 1)


def reserve_the_first_number(world: World) -> Call:
    return lambda fence: fence.reserve("of:charge:1", 0)


def sweep(world: World) -> Call:
    for number in range(3):
        world.put("expired", f"charge:{number}")
    return lambda fence: fence.sweep() >= 0


def promotion_of_a_branch(world: World) -> Call:
    ran(world, "base", branch="other")
    ran(world, "below", observes=["base"])
    world.fence.promote(branch="other")
    ran(world, "charge:1", branch="plan", observes=["below"])
    return lambda fence: fence.promote(branch="plan")


def promotion_of_an_intent(world: World) -> Call:
    ran(world, "base", branch="plan")
    ran(world, "middle", observes=["base"])
    ran(world, "charge:1", observes=["middle"])
    world.fence.promote(branch="plan")
    return lambda fence: fence.promote(intent="charge:1")


def promotion_over_a_dead_member(world: World) -> Call:
    ran(world, "charge:1", branch="plan", compensation=UNDO)
    ran(world, "top", observes=["charge:1"])
    world.fence.abort(world.admit("dead", branch="plan"), "it went wrong")
    # Who had decided it was dead before and is aborted by now: that is not told twice.
    return lambda fence: fence.reconcile_branch("plan").effects


def commit_over_a_rollback(world: World) -> Call:
    prepared = world.put("aborted_in_flight", compensation=UNDO)
    return lambda fence: fence.commit(prepared, {"receipt": 7})


CASES: tuple[Case, ...] = (
    *(admission, admission_that_rests_on_something, admission_after_a_release, takeover),
    *(refusal_that_fences_an_expired_lease, commit, commit_that_rests_on_something, commit_that_is_held),
    *(commit_of_a_stale_read_set, late_completion, late_evidence_of_a_released_attempt),
    *(late_evidence_of_a_replaced_attempt, abort, abort_without_effect, abort_with_dependents),
    *(reconcile_happened, reconcile_did_not_happen, reconcile_compensated, reconcile_of_an_expired_lease),
    *(reserve, reserve_the_first_number, sweep, promotion_of_a_branch, promotion_of_an_intent),
    *(promotion_over_a_dead_member, commit_over_a_rollback),
)
TWO_TRANSACTIONS = (
    admission_after_a_release,
    takeover,
    refusal_that_fences_an_expired_lease,
    reconcile_of_an_expired_lease,
)
"""The first looks or fences, the second does what was asked."""

VOLATILE = {"token", "lease_expires_at", "namespace", "minted_at", "admitted_at", "renewed_at", "since"}


def plain(value: Any) -> Any:
    """A result without what differs between two runs of the same call."""
    if isinstance(value, Fresh):
        value = value.prepared
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items() if name not in VOLATILE}
    return value


def outcome(call: Call, fence: Fence) -> tuple[str, Any]:
    try:
        return "answer", plain(call(fence))
    except FenceError as error:
        facts = error.facts()
        # In which words the same refusal is given again is not promised.
        return error.code, {name: facts[name] for name in sorted(facts) if name not in {*VOLATILE, "reason"}}


def stored(world: World) -> list[list[Any]]:
    """What a call leaves behind, counted in the tables."""
    queries = (
        "SELECT intent, attempt, state, seq, version, result, failure FROM effectfence.effects {} ORDER BY 1, 2",
        "SELECT hash, attempt FROM effectfence.certificates {} ORDER BY 1",
        "SELECT domain, seq FROM effectfence.domains {} ORDER BY 1",
        "SELECT intent_key, attempt, observed_key, observed_attempt, via FROM effectfence.edges {} ORDER BY 1, 2, 3, 4",
        "SELECT intent_key, attempt, version, to_state, cause, actor, evidence FROM effectfence.transitions {} ORDER BY 1, 2, 3",
    )
    mine = "WHERE namespace = :namespace"
    return [all_of(world.engine, query.format(mine), namespace=world.namespace) for query in queries]


def in_a_world_of_its_own(engine: sa.Engine) -> World:
    return World(engine, f"test-{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy(database_url) as proxy:
        yield proxy


def check(
    case: Case, cuts: tuple[Cut | None, ...], proxy: Proxy, engine: sa.Engine, through: sa.Engine | None = None
) -> None:
    undisturbed, disturbed = in_a_world_of_its_own(engine), in_a_world_of_its_own(engine)
    expected = outcome(case(undisturbed), undisturbed.fence)
    call = case(disturbed)
    with Fence(through or proxy.url, namespace=disturbed.namespace, config=FenceConfig(pool_size=2)) as fence:
        fence.current("nothing")
        proxy.cut(*cuts)
        found = outcome(call, fence)
    assert (proxy.pending, proxy.failures) == (0, []), "the connection did not die where it should"
    assert found == expected
    assert stored(disturbed) == stored(undisturbed)


def each(cases: tuple[Case, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("case", "cut"),
        [
            pytest.param(
                *(case, cut),
                id=f"{case.__name__}, {'before' if cut is Cut.BEFORE_COMMIT else 'after'} the COMMIT",
            )
            for case in cases
            for cut in Cut
        ],
    )


each_cut = pytest.mark.parametrize("cut", Cut, ids=["before the COMMIT arrived", "after the COMMIT"])


@each(CASES)
def test_a_call_whose_connection_dies_happens_once(case: Case, cut: Cut, proxy: Proxy, engine: sa.Engine) -> None:
    check(case, (cut,), proxy, engine)


@each_cut
def test_so_does_a_call_whose_third_transaction_dies(cut: Cut, proxy: Proxy, engine: sa.Engine) -> None:
    check(reconcile_of_an_expired_lease, (None, None, cut), proxy, engine)


@each(TWO_TRANSACTIONS)
def test_so_does_a_call_whose_second_transaction_dies(case: Case, cut: Cut, proxy: Proxy, engine: sa.Engine) -> None:
    check(case, (None, cut), proxy, engine)


@pytest.fixture(scope="module")
def given(proxy: Proxy) -> Iterator[sa.Engine]:
    """An engine of the caller's, whose transactions are a BEGIN, a statement and a COMMIT."""
    given = sa.create_engine(proxy.url)
    yield given
    given.dispose()


@each(CASES)
def test_so_does_a_call_on_an_engine_of_the_callers(
    case: Case, cut: Cut, proxy: Proxy, engine: sa.Engine, given: sa.Engine
) -> None:
    check(case, (cut,), proxy, engine, through=given)


def test_a_connection_that_dies_again_and_again_is_replaced_each_time(proxy: Proxy, engine: sa.Engine) -> None:
    check(commit, (Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT, Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT), proxy, engine)


@each_cut
def test_the_ticket_of_an_admission_whose_answer_was_lost_is_the_holders(cut: Cut, proxy: Proxy, world: World) -> None:
    with Fence(proxy.url, namespace=world.namespace) as fence:
        fence.current("nothing")
        proxy.cut(cut)
        admitted = fence.prepare(world.request())
        assert isinstance(admitted, Fresh)
        assert admitted.prepared.token == world.effect()["token"]
        certificate = fence.commit(admitted.prepared, "done")
    assert isinstance(certificate, EffectCert)
    assert certificate.verify()
    assert world.moves() == [(None, "in_flight", "admitted"), ("in_flight", "committed", "committed")]


def test_a_session_that_is_ended_while_it_waits_is_replaced(engine: sa.Engine, world: World) -> None:
    """As an administrator or a failover does it; the server says goodbye, so the connection does not just break."""
    with claim_gate(engine, world.namespace, "charge:1"):
        race = Race([lambda: world.fence.prepare(world.request())]).start()
        (first,) = await_waiting(engine, 1)
        assert one(engine, "SELECT pg_terminate_backend(:pid)", pid=first)
        await_waiting(engine, 1, besides=first)
    (admitted,) = race.results()
    assert isinstance(admitted, Fresh)
    assert world.moves() == [(None, "in_flight", "admitted")]


def lose_the_answer(call: Call, proxy: Proxy, world: World, meanwhile: Callable[[], object]) -> Any:
    """The result of a call whose answer is lost after its COMMIT, and others act before it can ask again."""
    with Fence(proxy.url, namespace=world.namespace) as fence:
        fence.current("nothing")
        proxy.cut(Cut.AFTER_COMMIT, meanwhile=meanwhile)
        try:
            return call(fence)
        finally:
            assert (proxy.pending, proxy.failures) == (0, [])


@pytest.mark.parametrize("case", [reconcile_did_not_happen, reconcile_compensated], ids=lambda case: case.__name__)
def test_an_operators_word_that_arrived_stands_when_the_intent_runs_again_before_the_answer(
    case: Case, proxy: Proxy, world: World
) -> None:
    status = lose_the_answer(case(world), proxy, world, lambda: world.commit(result="second"))
    assert (status.attempt, status.state) == (2, "committed")
    assert [cause for *_, cause in world.moves()].count(f"reconciled_{case.__name__.removeprefix('reconcile_')}") == 1


def test_an_abort_that_arrived_stands_when_the_intent_runs_again_before_the_answer(proxy: Proxy, world: World) -> None:
    call = abort_without_effect(world)
    rolled_back = lose_the_answer(call, proxy, world, lambda: world.commit(result="second"))
    assert (rolled_back.attempt, rolled_back.state) == (1, "released")
    assert [world.state(attempt=attempt) for attempt in (1, 2)] == ["released", "committed"]


def test_an_admission_that_was_fenced_before_its_answer_arrived_runs_nothing(proxy: Proxy, world: World) -> None:
    def fenced() -> None:
        world.expire()
        world.fence.sweep()

    with pytest.raises(IntentFailed):
        lose_the_answer(admission(world), proxy, world, fenced)
    assert [after for _, after, _ in world.moves()] == ["in_flight", "failed"]


def test_a_number_whose_answer_was_lost_is_given_to_nobody_else(proxy: Proxy, world: World) -> None:
    """The domain remembers its last reservation only: once others went on, the answer is a refusal, never a second number."""
    with pytest.raises(DomainRace):
        lose_the_answer(reserve_the_first_number(world), proxy, world, lambda: world.fence.reserve("of:charge:1", 1))
    assert world.seq("of:charge:1") == 2
