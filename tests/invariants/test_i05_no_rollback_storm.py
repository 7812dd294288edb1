"""I5: nothing that is in flight, executed or committed observes a dead effect, at every snapshot, with the same exception."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from effectfence_pg import FenceError, LeaseLost, PreparedEffect
from tests.support.rows import all_of, one
from tests.support.speculation import STORMS, UNDO, broken, decided, falls, ran
from tests.support.turmoil import Turmoil
from tests.support.world import World

ENDS: dict[str, Callable[[World, PreparedEffect], object]] = {
    "its holder gives up": lambda w, base: w.fence.abort(base, "wrong"),
    "its intent is aborted": lambda w, _: w.fence.abort_intent("base", attempt=1, reason="contradicted"),
    "its branch is aborted": lambda w, _: w.fence.abort_branch("plan", "contradicted"),
    "its branch has a dead member": lambda w, _: (
        w.fence.abort(w.admit("sibling", branch="plan"), "wrong"),
        w.fence.reconcile_branch("plan"),
    ),
    "what it observed itself falls": lambda w, _: w.fence.abort_intent("before", attempt=1, reason="contradicted"),
}
READERS = ("in_flight", "executed", "asked for", "failed", "expired", "of another branch", "late", "twice removed")


def reader(world: World, kind: str) -> str:
    """The intent of an effect that observed `base` and went as far as that."""
    branch = "other plan" if kind == "of another branch" else None
    prepared = world.admit("reader", observes=() if kind == "late" else ("base",), branch=branch)
    if kind == "late":
        world.fence.observe_late(prepared, (), ("base",))
    elif kind in {"executed", "of another branch", "twice removed"}:
        world.fence.commit(prepared, "done", closure="hold")
    elif kind == "asked for":
        with contextlib.suppress(FenceError):
            world.fence.commit(prepared, "done")
    elif kind == "failed":
        world.fence.abort(prepared, "connection reset")
    elif kind == "expired":
        world.expire("reader")
    if kind == "twice removed":
        world.admit("reader of the reader", observes=["reader"])
        return "reader of the reader"
    return "reader"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", READERS)
def test_whatever_ends_an_effect_ends_who_observed_it(world: World, end: str, kind: str) -> None:
    ran(world, "before", branch="plan before")
    base = ran(world, "base", branch="plan", observes=["before"])
    intent = reader(world, kind)
    ENDS[end](world, base)
    assert world.state(intent) == "aborted"
    assert falls(world)[intent][1] in {"base", "before"}
    assert broken(world.engine, world.namespace) == []


@pytest.mark.parametrize("end", ["compensated", "reconciled", "late evidence"])
def test_who_observed_what_ran_again_is_not_mixed_up_with_who_observed_what_fell(world: World, end: str) -> None:
    """Edges are to attempts: the second attempt's end takes its own readers, and the first one's evidence takes none."""
    first = ran(world, "base", branch="plan", compensation=UNDO)
    world.admit("first reader", observes=["base"])
    world.fence.abort_branch("plan", "contradicted")
    if end == "compensated":
        undoing = world.fence.prepare_compensation("base", attempt=1, agent="undoer").prepared
        world.fence.commit(undoing, "refunded")
    else:
        world.fence.reconcile("base", attempt=1, outcome="compensated", evidence=1, operator="olga")
    ran(world, "base", branch="second plan")
    world.admit("second reader", observes=["base"])
    if end == "late evidence":
        with pytest.raises(LeaseLost):
            world.fence.commit(first, "it ran again")
    assert (world.state("first reader"), world.state("second reader")) == ("aborted", "in_flight")
    assert broken(world.engine, world.namespace) == []
    world.fence.abort_branch("second plan", "contradicted")
    assert world.state("second reader") == "aborted"


def test_what_is_committed_is_no_longer_reached(world: World) -> None:
    decided(world, "base")
    ran(world, "reader", observes=["base"])
    world.fence.promote(intent="reader")
    with pytest.raises(FenceError):
        world.fence.abort_intent("base", attempt=1, reason="too late")
    assert world.state("reader") == "committed"


@pytest.mark.parametrize("seed", [3, 4])
def test_it_holds_at_every_moment_of_many_who_work_at_once(world: World, seed: int) -> None:
    turmoil = Turmoil(world, seed)
    assert turmoil.run(lambda: all_of(world.engine, STORMS, namespace=world.namespace)) == []
    assert broken(world.engine, world.namespace) == []
    edges = "SELECT count(*) FROM effectfence.edges WHERE namespace = :n"
    assert one(world.engine, edges, n=world.namespace) > 0, turmoil.done
    assert turmoil.looks > 10
