"""Several threads that do at random what agents and operators do, while somebody looks at every moment."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from effectfence_pg import Fence, FenceError, Fresh, PreparedEffect
from tests.support.racing import Race
from tests.support.rows import all_of, change
from tests.support.speculation import UNDO
from tests.support.world import World

WIDTH = 8
"""Intents that are worked on at the same time; every few steps an older one is left as it is."""

DOMAINS = 5

STANDING = """
SELECT e.intent, e.attempt FROM effectfence.effects e JOIN effectfence.intents i USING (namespace, intent_key, attempt)
WHERE e.namespace = :n AND e.state = ANY (:states) ORDER BY e.admitted_at DESC LIMIT 6"""
BRANCHES = (
    "SELECT branch FROM effectfence.branches WHERE namespace = :n AND state = 'open' ORDER BY opened_at DESC LIMIT 3"
)

STEPS = {
    "prepare": 14,
    "commit": 10,
    "abort": 2,
    "observe_late": 3,
    "decide_branch": 1,
    "promote": 1,
    "abort_intent": 1,
    "settle": 1,
    "expire": 2,
    "reconcile": 2,
    "undo": 1,
}
"""What is done, and how often in relation."""


class Turmoil:
    """One run: what was done, and what looked wrong."""

    chances: ClassVar = STEPS

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.done: Counter[str] = Counter()
        self.looks = 0
        self._steps = 0
        self._tickets: list[PreparedEffect] = []

    def run(self, look: Callable[[], list[Any]], *, threads: int = 4, steps: int = 60) -> list[Any]:
        """Everything that was seen to be wrong, at any moment of the run and after it."""
        over = threading.Event()

        def watch() -> list[Any]:
            wrong: list[Any] = []
            while not over.is_set():
                wrong += look()
                self.looks += 1
            return wrong

        watching = Race([watch]).start()
        workers = [lambda number=number: self._work(number, steps) for number in range(threads)]
        raised = [error for error in Race(workers).start().results() if error is not None]
        over.set()
        [seen] = watching.results()
        return [*raised, *(seen if isinstance(seen, list) else [seen]), *look()]

    def _work(self, number: int, steps: int) -> None:
        chance = random.Random(self.seed * 100 + number)
        fence = self._fence()
        for _ in range(steps):
            self._steps += 1
            name = chance.choices(list(self.chances), list(self.chances.values()))[0]
            try:
                getattr(self, name)(fence, chance)
            except FenceError as error:
                self.done[error.code] += 1
            else:
                self.done[name] += 1

    def _fence(self) -> Fence:
        return Fence(self.world.engine, namespace=self.world.namespace)

    def prepare(self, fence: Fence, chance: random.Random) -> None:
        intent = f"i:{self._steps // 6 + chance.randrange(WIDTH)}"
        seen = [name for name, _ in self._standing("executed", *["committed"] * (chance.random() < 0.2))]
        branch = chance.choice([f"b:{self._steps // 20}", *self._open_branches()])
        more: dict[str, Any] = {
            "domain": f"d:{int(intent.partition(':')[2]) % DOMAINS}",
            "compensation": UNDO,
            "on_lease_expiry": chance.choice(["fence", "fence", "takeover"]),
            "observes": chance.sample(seen, min(len(seen), chance.choice([0, 1, 2, 2]))),
            "branch": chance.choice([None, None, branch]),
        }
        if chance.random() < 0.3:
            more["read_set"] = [entry for entry in fence.observe(f"d:{chance.randrange(DOMAINS)}") if entry.settled]
        verdict = fence.prepare(self.world.request(intent, **more))
        if isinstance(verdict, Fresh):
            self._tickets.append(verdict.prepared)

    def commit(self, fence: Fence, chance: random.Random) -> None:
        fence.commit(self._ticket(chance), "done", closure=chance.choice(["require", "require", "hold", "promote"]))

    def abort(self, fence: Fence, chance: random.Random) -> None:
        fence.abort(self._ticket(chance), "no", effect=chance.choice(["unknown", "none"]))

    def observe_late(self, fence: Fence, chance: random.Random) -> None:
        seen = [name for name, _ in self._standing("executed")]
        fence.observe_late(self._ticket(chance), (), tuple(seen[:1]))

    def decide_branch(self, fence: Fence, chance: random.Random) -> None:
        for branch in self._open_branches()[-1:]:
            if chance.random() < 0.3:
                fence.abort_branch(branch, "contradicted")
            else:
                fence.reconcile_branch(branch)

    def promote(self, fence: Fence, _: random.Random) -> None:
        for intent, _attempt in self._standing("executed")[:1]:
            fence.promote(intent=intent)

    def abort_intent(self, fence: Fence, chance: random.Random) -> None:
        for intent, attempt in self._one(chance, "executed", "in_flight"):
            fence.abort_intent(intent, attempt=attempt, reason="contradicted")

    def settle(self, fence: Fence, _: random.Random) -> None:
        fence.settle()

    def expire(self, _: Fence, chance: random.Random) -> None:
        for intent, attempt in self._one(chance, "in_flight", "aborted"):
            self._expire(intent, attempt)

    def _expire(self, intent: str, attempt: int) -> None:
        change(
            self.world.engine,
            "UPDATE effectfence.effects SET lease_expires_at = clock_timestamp() - interval '1 second' "
            "WHERE namespace = :n AND intent = :i AND attempt = :a AND lease_expires_at IS NOT NULL",
            n=self.world.namespace,
            i=intent,
            a=attempt,
        )

    def reconcile(self, fence: Fence, chance: random.Random) -> None:
        outcome = chance.choice(["happened", "did_not_happen", "compensated"])
        more: dict[str, Any] = {"evidence": 1, "operator": "olga"}
        if outcome == "did_not_happen":
            more["basis"] = "holder_dead"
        if outcome == "happened":
            more |= {"result": "done", "over": chance.random() < 0.1}
        for intent, attempt in self._one(chance, "failed", "aborted"):
            fence.reconcile(intent, attempt=attempt, outcome=outcome, **more)

    def undo(self, fence: Fence, chance: random.Random) -> None:
        for intent, attempt in self._one(chance, "failed", "aborted"):
            verdict = fence.prepare_compensation(intent, attempt=attempt, agent="undoer", tool="refund")
            if isinstance(verdict, Fresh):
                self._tickets.append(verdict.prepared)

    def _standing(self, *states: str) -> list[tuple[str, int]]:
        return all_of(self.world.engine, STANDING, n=self.world.namespace, states=list(states))

    def _one(self, chance: random.Random, *states: str) -> list[tuple[str, int]]:
        found = self._standing(*states)
        return chance.sample(found, min(1, len(found)))

    def _open_branches(self) -> list[str]:
        return all_of(self.world.engine, BRANCHES, n=self.world.namespace)

    def _ticket(self, chance: random.Random) -> PreparedEffect:
        return chance.choice(self._tickets[-6:] or [self.world.admit(f"x:{chance.random()}")])
