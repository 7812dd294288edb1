"""Agents that really do something in a world outside the database, with everything that was called and answered on record."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NamedTuple

from effectfence_pg import Fence, FenceError, Fresh, PreparedEffect
from tests.support.rows import all_of
from tests.support.turmoil import BRANCHES, DOMAINS, WIDTH, Turmoil
from tests.support.world import World

Key = tuple[str, int]
"""intent, attempt."""

UNDOING = "compensation:"
DYING = 0.1
"""How many agents die before, and how many after their tool has run."""


class Event(NamedTuple):
    """One call: its place among everything that happened, before and after, and what was answered or raised."""

    began: int
    ended: int
    verb: str
    key: Key | None
    """The attempt that was shown or named, or that was admitted."""
    facts: dict[str, Any]
    answer: Any


class Look(NamedTuple):
    """What somebody saw of a domain, and when."""

    at: int
    value: frozenset[Key]


class Change(NamedTuple):
    """A tool did something in a domain, or took it back."""

    at: int
    domain: str
    key: Key


class History:
    """Everything that happened outside the database, in one order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.changes: list[Change] = []
        self.sights: dict[Key, dict[str, Look]] = {}
        """What the agent of each attempt had seen when it asked to be admitted with that as its read set."""
        self.standing: dict[str, set[Key]] = {}
        self.ran: set[Key] = set()
        self._clock = itertools.count()
        self._lock = threading.Lock()

    def now(self) -> int:
        return next(self._clock)

    def look(self, domain: str) -> Look:
        with self._lock:
            return Look(self.now(), frozenset(self.standing.get(domain, ())))

    def run(self, domain: str, key: Key, undoes: Key | None = None) -> None:
        """A tool acts: its effect stands from now on, or what it undoes stands no more."""
        with self._lock:
            self.ran.add(key)
            self.changes.append(Change(self.now(), domain, undoes or key))
            if undoes is None:
                self.standing.setdefault(domain, set()).add(key)
            else:
                self.standing.get(domain, set()).discard(undoes)

    def stands(self, key: Key) -> bool:
        with self._lock:
            return any(key in marks for marks in self.standing.values())


class Recording:
    """A fence whose calls are put on record. `facts`: the keyword arguments, and a request as it is."""

    def __init__(self, fence: Fence, history: History) -> None:
        self._fence = fence
        self._history = history

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._fence, verb)

        def recorded(*args: Any, **facts: Any) -> Any:
            began = self._history.now()
            try:
                answer = call(*args, **facts)
            except FenceError as error:
                answer = error
            key = subject(args[0] if args else None, facts, answer)
            self._history.events.append(Event(began, self._history.now(), verb, key, facts, answer))
            if isinstance(answer, FenceError):
                raise answer
            return answer

        return recorded


def subject(first: Any, facts: dict[str, Any], answer: Any) -> Key | None:
    """The attempt that a call was about, when it was about one."""
    ticket = answer.prepared if isinstance(answer, Fresh) else first
    if hasattr(ticket, "token"):
        return ticket.intent, ticket.attempt
    return (first, facts["attempt"]) if "attempt" in facts else None


class Agents(Turmoil):
    """The same turmoil by agents that look before they act, act, and sometimes die, and operators who tell the truth."""

    chances: ClassVar = {
        "work": 16,
        "finish": 10,
        "decide_branch": 2,
        "promote": 1,
        "abort_intent": 1,
        "settle": 1,
        "expire": 2,
        "reconcile": 3,
        "undo": 2,
    }

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.history = History()
        self._dead: set[Key] = set()
        self._over: set[Key] = set()
        """Attempts whose agent will not act any more."""
        self._slow: list[PreparedEffect] = []

    def _fence(self) -> Any:
        return Recording(super()._fence(), self.history)

    @contextmanager
    def _acting(self, key: Key) -> Iterator[None]:
        try:
            yield
        finally:
            self._over.add(key)

    def work(self, fence: Fence, chance: random.Random) -> None:
        """Read numbers, then the world; decide, ask, act, report."""
        intent = f"i:{self._steps // 6 + chance.randrange(WIDTH)}"
        domain = f"d:{int(intent.partition(':')[2]) % DOMAINS}"
        entries = fence.observe(
            *chance.sample([f"d:{number}" for number in range(DOMAINS)], chance.choice([0, 1, 1, 2]))
        )
        sight = {entry.domain: self.history.look(entry.domain) for entry in entries}
        if not all(entry.settled for entry in entries):
            entries, sight = (), {}
        seen = [name for name, _ in self._standing("executed")]
        open_branches = all_of(self.world.engine, BRANCHES, n=self.world.namespace)
        branch = chance.choice([None, None, f"b:{self._steps // 20}", *open_branches])
        observes = chance.sample(seen, min(len(seen), chance.choice([0, 0, 1, 2])))
        more = {"domain": domain, "read_set": entries, "branch": branch, "observes": observes}
        verdict = fence.prepare(self.world.request(intent, **more))
        if isinstance(verdict, Fresh):
            key = intent, verdict.prepared.attempt
            self.history.sights[key] = sight
            self._slow.append(verdict.prepared)
            if chance.random() < 0.4:
                self.finish(fence, chance)

    def finish(self, fence: Fence, chance: random.Random) -> None:
        """An agent does what it was admitted to, some time after."""
        with suppress(IndexError):
            ticket = self._slow.pop(chance.choice([0, -1]))
            with self._acting((ticket.intent, ticket.attempt)):
                self._act(fence, chance, ticket)

    def _act(self, fence: Fence, chance: random.Random, ticket: PreparedEffect) -> None:
        key, fate = (ticket.intent, ticket.attempt), chance.random()
        if fate < DYING:
            self._dead.add(key)
            return
        if fate < 2 * DYING:
            fence.abort(ticket, "never sent", effect="none")
            return
        self.history.run(ticket.domain, key)
        if fate < 3 * DYING:
            self._dead.add(key)
        elif fate < 4 * DYING:
            fence.abort(ticket, "connection reset")
        else:
            fence.commit(ticket, "done", closure=chance.choice(["require", "hold", "promote"]))

    def expire(self, _: Fence, chance: random.Random) -> None:
        """Only who is dead is unheard of: what a slow holder does after its lease, nobody but downstream can refuse."""
        for intent, attempt in self._one(chance, "in_flight", "aborted"):
            if (intent, attempt) in self._dead:
                self._expire(intent, attempt)

    def reconcile(self, fence: Fence, chance: random.Random) -> None:
        for key in self._one(chance, "failed", "aborted"):
            if key not in self._over:
                continue
            stands = key in self.history.ran if key[0].startswith(UNDOING) else self.history.stands(key)
            more: dict[str, Any] = {"outcome": "compensated"}
            if stands:
                more = {"outcome": "happened", "result": "done"}
            elif key not in self.history.ran:
                more = {"outcome": "did_not_happen", "basis": "holder_dead"}
            fence.reconcile(key[0], attempt=key[1], evidence="looked", operator="olga", **more)

    def undo(self, fence: Fence, chance: random.Random) -> None:
        for key in self._one(chance, "failed", "aborted"):
            if key not in self._over or key[0].startswith(UNDOING):
                continue
            verdict = fence.prepare_compensation(key[0], attempt=key[1], agent="undoer", tool="undo")
            if isinstance(verdict, Fresh):
                ticket = verdict.prepared
                own = ticket.intent, ticket.attempt
                with self._acting(own):
                    if chance.random() < DYING:
                        self._dead.add(own)
                        continue
                    self.history.run(ticket.domain, own, undoes=key)
                    fence.commit(ticket, "undone")
