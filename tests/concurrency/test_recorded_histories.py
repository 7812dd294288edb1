"""Agents, deciders and operators at once, with everything they did and were told on record; a checker judges afterwards.

The checker knows the world outside, the answers in their real order, and the rows at the end. It never asks the fence.
`scripts/test tests/concurrency/test_recorded_histories.py --hypothesis-profile=long` records 200 histories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import Aborted, Blocker, ClosurePending, FallenEffect, Fresh, Held
from tests.support.histories import Agents, Event, History, Key, Look
from tests.support.judging import End, judge, stored, validated
from tests.support.rows import all_of
from tests.support.speculation import STORMS, UNRECOVERABLE, broken
from tests.support.world import World

SHORT, LONG = 3, 200
"""Histories in every run of the tests, and in a long one."""


def test_no_history_breaks_a_promise(
    engine: sa.Engine, namespace: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    count = LONG if request.config.getoption("--hypothesis-profile") == "long" else SHORT
    operations = readers = 0
    for seed in range(count):
        world = World(engine, f"{namespace}-{seed}")
        agents = Agents(world, seed)
        wrong = agents.run(
            lambda world=world: all_of(engine, f"{STORMS} UNION ALL {UNRECOVERABLE}", namespace=world.namespace),
            steps=25,
        )
        stood = stored(engine, world.namespace)
        assert [*wrong, *judge(agents.history, stood), *broken(engine, world.namespace)] == [], f"seed {seed}"
        operations += len(agents.history.events)
        readers += len(validated(agents.history))
    assert readers, "nobody who read anything got through: that proves nothing"
    with capsys.disabled():
        told = f"recorded histories: {count}, operations: {operations}, read sets that held at commit: {readers}"
        print(f"\n{told}")  # noqa: T201 (the figures of a long run)


A, B = ("a", 1), ("b", 1)


class Forged(History):
    """A history that no fence should make: A observed B, and both were let go on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        for key, observes in ((B, ()), (A, ("b",))):
            ticket = world.admit(key[0], domain="d")
            self.tell("prepare", key, Fresh(ticket), observes=observes)
            self.run("d", key)

    def tell(self, verb: str, key: Key | None, answer: Any, **facts: Any) -> None:
        self.events.append(Event(self.now(), self.now(), verb, key, facts, answer))


def end(a: str, b: str) -> End:
    return End({A: a, B: b}, {A: {B}}, {})


def commits_what_rests_on_a_rollback(history: History) -> End:
    return end("committed", "aborted")


def goes_on_after_a_rollback(history: Forged) -> End:
    history.tell("abort_branch", None, Aborted(effects=(FallenEffect(intent="b", attempt=1, state="executed"),)))
    history.tell("commit", A, Held(intent="a", attempt=1, blockers=(Blocker("b", 1, "aborted"),)))
    return end("executed", "aborted")


def runs_without_admission(history: Forged) -> End:
    history.run("d", ("c", 1))
    return end("executed", "executed")


def is_certified_and_never_ran(history: Forged) -> End:
    history.ran.discard(A)
    return end("committed", "committed")


def admits_twice(history: Forged) -> End:
    history.events.append(history.events[0])
    return end("executed", "executed")


def acts_on_what_changed(history: Forged) -> End:
    history.sights[A] = {"e": Look(history.now(), frozenset())}
    history.run("e", B)
    history.tell("commit", A, ClosurePending(intent="a", attempt=1))
    return end("executed", "executed")


def acts_on_what_was_rolled_back(history: Forged) -> End:
    history.sights[A] = {"d": Look(history.now(), frozenset({B}))}
    history.tell("commit", A, ClosurePending(intent="a", attempt=1))
    return End({A: "committed", B: "released"}, {}, {})


FORGED: dict[Callable[[Any], End], str] = {
    commits_what_rests_on_a_rollback: "I4",
    goes_on_after_a_rollback: "I5",
    runs_without_admission: "I1",
    is_certified_and_never_ran: "I1",
    admits_twice: "I1",
    acts_on_what_changed: "I13",
    acts_on_what_was_rolled_back: "I13",
}


@pytest.mark.parametrize(("forge", "invariant"), FORGED.items(), ids=lambda each: getattr(each, "__name__", each))
def test_the_checker_finds_what_is_broken(world: World, forge: Callable[[Any], End], invariant: str) -> None:
    history = Forged(world)
    assert judge(history, end("executed", "executed")) == []
    found = judge(history, forge(history))
    assert {line.partition(":")[0] for line in found} == {invariant}, found
