"""I13: who validated a read set at prepare and at commit did not act on a value that was rolled back or that changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from effectfence_pg import ClosurePending, EffectCert, FenceError, PreparedEffect
from tests.support.speculation import UNDO, ran
from tests.support.world import World

OLD, NEW = "old", "new"
Step = Callable[[], object]


class Writer:
    """An agent that changes a value in the world under the fence, and what becomes of that."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.intent, self.domain, self.branch = f"write:{number}", f"stock:{number}", f"plan:{number}"
        self.value = OLD
        self.ticket: Any = None
        self.undoing: Any = None

    def prepare(self, branch: str | None = None) -> None:
        self.ticket = self.world.admit(self.intent, domain=self.domain, branch=branch, compensation=UNDO)

    def write(self) -> None:
        self.value = NEW

    def undo(self) -> None:
        verdict = self.world.fence.prepare_compensation(self.intent, attempt=1, agent="undoer")
        self.undoing = verdict.prepared
        self.value = OLD

    def endings(self) -> dict[str, list[Step]]:
        fence = self.world.fence
        return {
            "committed": [self.prepare, self.write, lambda: fence.commit(self.ticket, NEW)],
            "promoted": [
                lambda: self.prepare(self.branch),
                self.write,
                lambda: fence.commit(self.ticket, NEW),
                lambda: fence.promote(branch=self.branch),
            ],
            "rolled back and undone": [
                lambda: self.prepare(self.branch),
                self.write,
                lambda: fence.commit(self.ticket, NEW),
                lambda: fence.abort_branch(self.branch, "contradicted"),
                lambda: (self.undo(), fence.commit(self.undoing, OLD)),
            ],
            "unknown and undone": [
                self.prepare,
                self.write,
                lambda: fence.abort(self.ticket, "connection reset"),
                self.undo,
                lambda: fence.commit(self.undoing, OLD),
            ],
            "never sent": [self.prepare, lambda: fence.abort(self.ticket, "never sent", effect="none")],
        }


class Reader:
    """An agent that reads the number, then the world, decides, and acts if it is admitted."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.world = writer, writer.world
        self.intent = f"act:{writer.number}"
        self.entries: Any = ()
        self.seen = ""
        self.ticket: PreparedEffect | None = None
        self.refused = False
        self.validated = False
        """Whether its read set passed at prepare and at commit."""
        self.value_then = ""

    def steps(self) -> list[Step]:
        return [self.number, self.look, self.prepare, self.commit]

    def number(self) -> None:
        self.entries = self.world.fence.observe(self.writer.domain)

    def look(self) -> None:
        self.seen = self.writer.value

    def prepare(self) -> None:
        try:
            self.ticket = self.world.admit(self.intent, read_set=self.entries, args={"saw": self.seen})
        except FenceError:
            self.refused = True

    def commit(self) -> None:
        if self.ticket is None:
            return
        self.value_then = self.writer.value
        try:
            self.world.fence.commit(self.ticket, f"acted on {self.seen}")
        except ClosurePending:
            self.validated = True
        except FenceError:
            self.refused = True
        else:
            self.validated = True


def orders(writes: int, reads: int) -> Iterator[tuple[int, ...]]:
    """Every way to put the writer's steps between the reader's: their places among all steps."""
    return itertools.combinations(range(writes + reads), writes)


def check(reader: Reader, writer: Writer) -> None:
    states = reader.world.fence.status(reader.intent).state, reader.world.fence.status(writer.intent).state
    facts = f"saw {reader.seen}, then it was {reader.value_then}; now {states}"
    assert reader.value_then == reader.seen, facts
    assert states[0] in {"committed", "aborted"}, facts
    if states[0] == "committed":
        assert reader.seen == OLD or states[1] == "committed", facts


@pytest.mark.parametrize(
    "ending", ["committed", "promoted", "rolled back and undone", "unknown and undone", "never sent"]
)
def test_in_every_order_of_a_writers_and_a_readers_steps(world: World, ending: str) -> None:
    counted = {"validated": 0, "refused": 0}
    length = len(Writer(world, 0).endings()[ending])
    for number, places in enumerate(orders(length, 4)):
        writer = Writer(world, number)
        reader = Reader(writer)
        writes, reads = iter(writer.endings()[ending]), iter(reader.steps())
        for place in range(length + 4):
            next(writes if place in places else reads)()
        if reader.validated:
            world.fence.settle()
            check(reader, writer)
        counted["validated"] += reader.validated
        counted["refused"] += reader.refused
    assert min(counted.values()) > 0, counted


def test_a_value_read_before_its_number_is_what_the_order_of_reading_keeps_out(world: World) -> None:
    """The other order would let this happen: the number of the new value beside the old value."""
    writer = Writer(world, 1)
    reader = Reader(writer)
    reader.look()
    for step in writer.endings()["committed"]:
        step()
    reader.number()
    reader.prepare()
    reader.commit()
    assert (reader.validated, reader.seen, reader.value_then) == (True, OLD, NEW)


def test_a_reader_that_waits_with_its_closure_commits_only_on_a_value_that_stands(world: World) -> None:
    for branch, decide in (("kept", world.fence.promote), ("dropped", None)):
        ran(world, f"write:{branch}", NEW, domain=f"stock:{branch}", branch=branch)
        reader = world.admit(f"act:{branch}", read_set=world.fence.observe(f"stock:{branch}"))
        with pytest.raises(ClosurePending):
            world.fence.commit(reader, "acted on new")
        if decide is None:
            world.fence.abort_branch(branch, "contradicted")
        else:
            decide(branch=branch)
    world.fence.settle()
    assert isinstance(world.status("act:kept").certificate, EffectCert)
    assert world.status("act:dropped").certificate is None
    assert world.state("act:dropped") == "aborted"
