"""I6: a refusal changes nothing. Every class of refusal, with every row as it was, down to who wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import effectfence_pg
from effectfence_pg import Fence, FenceConfig, FenceError, FenceRepository
from effectfence_pg import errors as refusals
from tests.support.speculation import ran
from tests.support.world import World

Case = Callable[[World], Callable[[], object]]
CASES: dict[str, list[Case]] = {}

OF_THE_DATABASE = {
    "permission_denied",
    "database_failure",
    "database_unavailable",
    "database_encoding_error",
    "schema_version_error",
    "retries_exhausted",
    "serialization_conflict",
}
"""Tested where the database that causes them is at hand."""

OF_A_TOOL = {"tool_unfinished"}
"""No refusal: the tool was called, and its attempt is fenced."""


def case(code: str) -> Callable[[Case], Case]:
    def register(make: Case) -> Case:
        CASES.setdefault(code, []).append(make)
        return make

    return register


def asks(world: World, *names: object, **more: Any) -> Callable[[], object]:
    return lambda: world.fence.prepare(world.request(*names, **more))


@case("invalid_request")
def _(world: World) -> Callable[[], object]:
    return lambda: world.fence.prepare({"intent": "charge:1"})


@case("intent_in_flight")
def _(world: World) -> Callable[[], object]:
    world.admit()
    return asks(world)


@case("intent_in_flight")
def held(world: World) -> Callable[[], object]:
    world.hold()
    return asks(world)


@case("intent_in_flight")
def running(world: World) -> Callable[[], object]:
    world.admit()
    return lambda: world.fence.reconcile("charge:1", attempt=1, outcome="happened", result=1, evidence=1, operator="o")


@case("intent_failed")
def _(world: World) -> Callable[[], object]:
    world.put("failed")
    return asks(world)


@case("intent_failed")
def aborted(world: World) -> Callable[[], object]:
    world.put("aborted")
    return asks(world)


@case("intent_mismatch")
def _(world: World) -> Callable[[], object]:
    world.commit()
    return asks(world, tool="refund")


@case("unknown_parent")
def _(world: World) -> Callable[[], object]:
    return asks(world, parent="0" * 64)


@case("read_set_stale")
def _(world: World) -> Callable[[], object]:
    world.commit(domain="stock")
    return asks(world, "reader", read_set=[{"domain": "stock", "seq": 0}])


@case("read_set_stale")
def repeated(world: World) -> Callable[[], object]:
    prepared = world.admit("reader", read_set=world.fence.observe("stock"))
    world.commit(domain="stock")
    with pytest.raises(refusals.ReadSetStale):
        world.fence.commit(prepared, "done")
    return lambda: world.fence.commit(prepared, "done")


@case("read_set_unsettled")
def _(world: World) -> Callable[[], object]:
    world.admit(domain="stock")
    return asks(world, "reader", read_set=[{"domain": "stock", "seq": 1}])


@case("unknown_intent")
def _(world: World) -> Callable[[], object]:
    return asks(world, observes=["nobody"])


@case("unknown_intent")
def status(world: World) -> Callable[[], object]:
    return lambda: world.fence.status("nobody")


@case("domain_race")
def _(world: World) -> Callable[[], object]:
    world.commit(domain="stock")
    return asks(world, "writer", domain="stock", expected_seq=0)


@case("domain_race")
def reserve(world: World) -> Callable[[], object]:
    world.commit(domain="stock")
    return lambda: world.fence.reserve("stock", 0)


@case("unknown_ticket")
def _(world: World) -> Callable[[], object]:
    prepared = world.admit()
    forged = prepared.model_copy(update={"token": "00000000-0000-4000-8000-000000000000"})
    return lambda: world.fence.commit(forged, "done")


@case("ticket_mismatch")
def _(world: World) -> Callable[[], object]:
    edited = world.admit().model_copy(update={"seq": 7})
    return lambda: world.fence.abort(edited, "no")


@case("commit_conflict")
def _(world: World) -> Callable[[], object]:
    prepared = world.put("committed")
    return lambda: world.fence.commit(prepared, "something else")


@case("commit_conflict")
def abort_committed(world: World) -> Callable[[], object]:
    prepared = world.put("committed")
    return lambda: world.fence.abort(prepared, "no")


@case("lease_lost")
def _(world: World) -> Callable[[], object]:
    prepared = world.put("superseded")
    return lambda: world.fence.renew(prepared)


@case("lease_lost")
def again(world: World) -> Callable[[], object]:
    prepared = world.put("superseded")
    with pytest.raises(refusals.LeaseLost):
        world.fence.commit(prepared, "done")
    return lambda: world.fence.commit(prepared, "done")


@case("closure_pending")
def _(world: World) -> Callable[[], object]:
    world.hold("base")
    prepared = world.admit(observes=["base"])
    with pytest.raises(refusals.ClosurePending):
        world.fence.commit(prepared, "done")
    return lambda: world.fence.commit(prepared, "done")


@case("closure_aborted")
def _(world: World) -> Callable[[], object]:
    prepared = world.put("aborted_in_flight")
    return lambda: world.fence.renew(prepared)


@case("closure_aborted")
def happened(world: World) -> Callable[[], object]:
    world.put("aborted_in_flight")
    world.expire()
    return lambda: world.fence.reconcile("charge:1", attempt=1, outcome="happened", result=1, evidence=1, operator="o")


@case("closure_aborted")
def again_with_what_fell(world: World) -> Callable[[], object]:
    prepared = world.put("aborted_in_flight")
    with pytest.raises(refusals.ClosureAborted):
        world.fence.commit(prepared, "done")
    return lambda: world.fence.commit(prepared, "done")


@case("branch_decided")
def _(world: World) -> Callable[[], object]:
    ran(world, "first", branch="plan")
    world.fence.promote(branch="plan")
    return asks(world, "second", branch="plan")


@case("branch_decided")
def too_late_to_abort(world: World) -> Callable[[], object]:
    ran(world, "first", branch="plan")
    world.fence.promote(branch="plan")
    return lambda: world.fence.abort_branch("plan", "contradicted")


@case("unknown_branch")
def _(world: World) -> Callable[[], object]:
    return lambda: world.fence.promote(branch="nobody's")


@case("unknown_branch")
def nobodys(world: World) -> Callable[[], object]:
    return lambda: world.fence.abort_branch("nobody's", "contradicted")


def three_deep(world: World) -> Fence:
    """A fence that walks two members and no more, above which there are three."""
    for intent, observes in (("a", ()), ("b", ("a",)), ("c", ("b",))):
        ran(world, intent, branch="plan", observes=observes)
    return Fence(world.engine, namespace=world.namespace, config=FenceConfig(max_closure_members=2))


@case("closure_too_large")
def _(world: World) -> Callable[[], object]:
    fence = three_deep(world)
    return lambda: fence.promote(branch="plan")


@case("closure_too_large")
def of_a_commit(world: World) -> Callable[[], object]:
    fence = three_deep(world)
    prepared = world.admit(observes=["c"])
    with pytest.raises(refusals.ClosureTooLarge):
        fence.commit(prepared, "done")
    return lambda: fence.commit(prepared, "done")


@case("result_not_recordable")
def _(world: World) -> Callable[[], object]:
    prepared = world.admit()
    return lambda: world.fence.commit(prepared, float("nan"))


@case("result_not_replayable")
def _(world: World) -> Callable[[], object]:
    world.fence.run(world.request(), lambda: float("nan"))
    return lambda: world.fence.run(world.request(), lambda: pytest.fail("it ran again"))


@case("fence_closed")
def _(world: World) -> Callable[[], object]:
    closed = Fence(world.engine, namespace=world.namespace)
    closed.close()
    return lambda: closed.prepare(world.request())


@case("attempt_mismatch")
def _(world: World) -> Callable[[], object]:
    world.put("failed")
    return lambda: world.fence.reconcile("charge:1", attempt=2, outcome="compensated", evidence=1, operator="o")


@case("not_reconcilable")
def _(world: World) -> Callable[[], object]:
    world.put("committed")
    return lambda: world.fence.reconcile("charge:1", attempt=1, outcome="compensated", evidence=1, operator="o")


@case("isolation_too_weak")
def _(world: World) -> Callable[[], object]:
    def ask() -> None:
        with world.engine.begin() as connection:
            FenceRepository(connection, namespace=world.namespace).prepare(world.request())

    return ask


@pytest.mark.parametrize(("code", "number"), [(code, n) for code, made in CASES.items() for n in range(len(made))])
def test_a_refusal_leaves_every_row_as_it_was(world: World, code: str, number: int) -> None:
    act = CASES[code][number](world)
    before = world.rows()
    for _ in range(2):
        with pytest.raises(FenceError) as refused:
            act()
        assert refused.value.code == code
        assert world.rows() == before


def test_every_class_of_refusal_has_its_case() -> None:
    named = [getattr(effectfence_pg, name) for name in effectfence_pg.__all__]
    classes = {kind.code for kind in named if isinstance(kind, type) and issubclass(kind, FenceError)} - {
        FenceError.code
    }
    assert set(CASES) | OF_THE_DATABASE | OF_A_TOOL == classes


def test_a_call_that_gives_up_retrying_leaves_every_row_as_it_was(migrated_database: str) -> None:
    engine = sa.create_engine(migrated_database)
    world = World(engine, "tenant", FenceConfig(retry_deadline_seconds=0.05))
    world.commit("earlier")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = 'serialization_failure'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER conflict AFTER INSERT ON effectfence.transitions FOR EACH ROW EXECUTE FUNCTION conflict()"
        )
    before = world.rows()
    with pytest.raises(refusals.RetriesExhausted) as refused:
        world.fence.prepare(world.request())
    assert refused.value.attempts > 1
    assert refused.value.sqlstate == "40001"
    assert world.rows() == before
    engine.dispose()


def test_a_fence_of_another_namespace_is_refused_without_a_trace_in_either(world: World) -> None:
    prepared = world.admit()
    other = World(world.engine, world.namespace + "-b")
    before, theirs = world.rows(), other.rows()
    for act in (lambda: other.fence.commit(prepared, 1), lambda: other.fence.abort(prepared, "no")):
        with pytest.raises(FenceError):
            act()
    assert (world.rows(), other.rows()) == (before, theirs)
    assert isinstance(other.fence, Fence)
