"""I4: a committed effect's closure is committed, save certificates marked `reconciled_over`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from effectfence_pg import FenceError, PreparedEffect
from tests.support.rows import all_of, one
from tests.support.speculation import UNRECOVERABLE, decided, ran
from tests.support.turmoil import Turmoil
from tests.support.world import World

WAYS: dict[str, Callable[[World, PreparedEffect], object]] = {
    "commit": lambda w, ticket: w.fence.commit(ticket, "done"),
    "hold": lambda w, ticket: w.fence.commit(ticket, "done", closure="hold"),
    "promote with the commit": lambda w, ticket: w.fence.commit(ticket, "done", closure="promote"),
    "promote": lambda w, ticket: w.fence.promote(intent=ticket.intent),
    "promote its branch": lambda w, ticket: w.fence.promote(branch=ticket.branch),
    "settle": lambda w, ticket: w.fence.settle(),
    "happened": lambda w, ticket: w.fence.reconcile(
        ticket.intent, attempt=1, outcome="happened", result="done", evidence=1, operator="olga"
    ),
}
BASES = ("executed", "in an open branch", "failed", "aborted", "released", "superseded")
OWN = ("in_flight", "expired", "fenced", "held", "asked for", "in a branch", "reported late")


def prepare(world: World, own: str, base: str) -> PreparedEffect:
    """`mine` observed `base`, which is in that state, and went as far as `own` says."""
    if base == "in an open branch":
        ran(world, "base", branch="base plan")
    else:
        decided(world, "base")
    mine = world.admit("mine", observes=["base"], branch="plan" if own == "in a branch" else None)
    if own in {"expired", "fenced", "reported late"}:
        world.expire("mine")
    if own in {"fenced", "reported late"}:
        world.fence.sweep()
    if own in {"held", "in a branch"}:
        world.fence.commit(mine, "done", closure="hold")
    if own == "asked for":
        with contextlib.suppress(FenceError):
            world.fence.commit(mine, "done")
    if base in {"failed", "aborted", "released", "superseded"}:
        # Behind the fence's back: with its verbs `mine` would have fallen in the same transaction.
        world.edit("base", state=base)
    return mine


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("own", OWN)
def test_nothing_commits_before_what_it_observed_by_any_way(world: World, own: str, base: str) -> None:
    mine = prepare(world, own, base)
    for way in WAYS.values():
        with contextlib.suppress(FenceError):
            way(world, mine)
        if world.state("base") != "committed":
            assert world.state("mine") != "committed"
        assert all_of(world.engine, UNRECOVERABLE, namespace=world.namespace) == []


def test_the_named_exception_is_marked_and_names_who_stands_for_it(world: World) -> None:
    base = ran(world, "base", branch="plan")
    mine = world.admit("mine", observes=["base"])
    world.fence.abort(base, "contradicted")
    with contextlib.suppress(FenceError):
        world.fence.commit(mine, "it did run")
    world.fence.reconcile("mine", attempt=1, outcome="happened", evidence=1, operator="olga", over=True)
    marked = "SELECT reconciled_over FROM effectfence.certificates WHERE namespace = :n"
    assert all_of(world.engine, marked, n=world.namespace) == [
        {"operator": "olga", "blockers": [["base", 1, "aborted"]]}
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_it_holds_at_every_moment_of_many_who_work_at_once(world: World, seed: int) -> None:
    turmoil = Turmoil(world, seed)
    assert turmoil.run(lambda: all_of(world.engine, UNRECOVERABLE, namespace=world.namespace)) == []
    edges = "SELECT count(*) FROM effectfence.edges WHERE namespace = :n"
    assert one(world.engine, edges, n=world.namespace) > 0, turmoil.done
    assert turmoil.looks > 10
