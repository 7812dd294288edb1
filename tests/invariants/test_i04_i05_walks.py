"""I4, I5 and what else must hold after every step: random walks through the verbs, looked at behind the fence's back.

I4: a committed effect's closure is committed. I5: nothing that is in flight, executed or committed observes a dead effect.
Certificates marked `reconciled_over` are the named exception of both.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from effectfence_pg import FenceError, Fresh, PreparedEffect
from tests.support.rows import all_of
from tests.support.world import World

OBSERVES = """
FROM effectfence.effects e JOIN effectfence.edges g USING (namespace, intent_key, attempt)
JOIN effectfence.effects o ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
LEFT JOIN effectfence.certificates x
  ON x.namespace = e.namespace AND x.intent_key = e.intent_key AND x.attempt = e.attempt
WHERE e.namespace = :n AND x.reconciled_over IS NULL AND"""
DEAD = "('failed', 'aborted', 'released', 'superseded')"
BROKEN = f"""
SELECT 'I4', e.intent {OBSERVES} e.state = 'committed' AND o.state <> 'committed'
UNION ALL
SELECT 'I5', e.intent {OBSERVES} e.state IN ('in_flight', 'executed', 'committed') AND o.state IN {DEAD}
UNION ALL
SELECT 'the settled mark passed it', e.intent FROM effectfence.effects e
JOIN effectfence.domains d USING (namespace, domain_key)
WHERE namespace = :n AND e.seq <= d.settled_seq AND e.state NOT IN ('committed', 'released', 'superseded')
UNION ALL
SELECT 'its number is beyond its domain', e.intent FROM effectfence.effects e
JOIN effectfence.domains d USING (namespace, domain_key) WHERE namespace = :n AND e.seq > d.seq
UNION ALL
SELECT 'lease, result and reason fit its state', e.intent FROM effectfence.effects e WHERE namespace = :n AND NOT (
  (e.lease_expires_at IS NOT NULL) >= (e.state = 'in_flight')
  AND (e.lease_expires_at IS NULL OR e.state IN ('in_flight', 'aborted'))
  AND (e.result IS NOT NULL OR e.state NOT IN ('executed', 'committed'))
  AND (e.failure IS NOT NULL) = (e.state IN {DEAD}) AND (e.reason IS NOT NULL) = (e.state IN {DEAD}))
UNION ALL
SELECT 'an earlier attempt is undecided', e.intent FROM effectfence.effects e
JOIN effectfence.intents i USING (namespace, intent_key)
WHERE namespace = :n AND e.attempt < i.attempt AND e.state NOT IN ('released', 'superseded')
UNION ALL
SELECT 'its certificate does not hold', a.intent FROM effectfence.certificate_audit a
WHERE namespace = :n AND NOT (hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds
  AND closure_holds AND record_holds)
UNION ALL
SELECT 'its transitions do not lead to its state', intent FROM (
  SELECT e.intent, e.state, from_state, to_state, lag(to_state) OVER w AS before, lead(to_state) OVER w AS after
  FROM effectfence.transitions t JOIN effectfence.effects e USING (namespace, intent_key, attempt)
  WHERE namespace = :n WINDOW w AS (PARTITION BY t.intent_key, t.attempt ORDER BY t.version)) AS steps
WHERE from_state IS DISTINCT FROM before OR (after IS NULL AND to_state <> state)"""

DOMAINS = ["p", "q", "r", "s"]


class Walk:
    """One random walk: every step is a verb that anybody could call, with whatever tickets there are."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.tickets: list[PreparedEffect] = []
        self.steps: list[str] = []

    def step(self) -> None:
        verbs: dict[str, tuple[int, Callable[[str], object]]] = {
            "prepare": (12, self.prepare),
            "commit": (2, lambda _: self.world.fence.commit(self.ticket(), self.chance.choice("xxy"))),
            "hold": (4, lambda _: self.world.fence.commit(self.ticket(), "x", closure="hold")),
            "abort": (3, lambda _: self.world.fence.abort(self.ticket(), "no")),
            "release": (2, lambda _: self.world.fence.abort(self.ticket(), "no", effect="none")),
            "renew": (1, lambda _: self.world.fence.renew(self.ticket())),
            "expire": (2, lambda _: self.world.expire(self.chance.choice(self.current("in_flight", "aborted")))),
            "execute": (4, lambda _: self.world.execute(self.chance.choice(self.current("in_flight")))),
            "sweep": (1, lambda _: self.world.fence.sweep()),
            "happened": (2, lambda _: self.judge(self.fenced(), "happened", result="x")),
            "over": (1, lambda _: self.judge(self.fenced(), "happened", result="x", over=True)),
            "clear": (2, lambda _: self.judge(self.fenced(), "did_not_happen", basis="holder_dead")),
            "compensated": (1, lambda _: self.judge(self.fenced(), "compensated")),
        }
        name = self.chance.choices(list(verbs), [weight for weight, _ in verbs.values()])[0]
        intent = self.intent()
        self.steps.append(f"{name} {intent}")
        # A verb may refuse, a lease may not be there to expire, an intent not to be executed, a ticket not to be shown.
        with contextlib.suppress(FenceError, AssertionError, LookupError):
            verbs[name][1](intent)

    def intent(self) -> str:
        """One of the few that are being worked on; every few steps a new one is among them."""
        return f"intent:{len(self.steps) // 5 + self.chance.randrange(5)}"

    def current(self, *states: str) -> list[str]:
        """The intents whose newest attempt is in one of these states, in an order that does not change between runs."""
        found = all_of(
            self.world.engine,
            "SELECT e.intent, e.state FROM effectfence.effects e JOIN effectfence.intents i USING (namespace, intent_key) "
            "WHERE namespace = :n AND e.attempt = i.attempt ORDER BY e.intent DESC",
            n=self.world.namespace,
        )
        return [intent for intent, state in found if state in states]

    def ticket(self) -> PreparedEffect:
        return self.chance.choice(self.tickets[-6:])

    def prepare(self, intent: str) -> None:
        more: dict[str, Any] = {"on_lease_expiry": self.chance.choice(["fence", "takeover"])}
        if self.chance.random() < 0.4:
            more["read_set"] = self.world.fence.observe(*self.chance.sample(DOMAINS, self.chance.randint(1, 2)))
        if self.chance.random() < 0.4:
            more["observes"] = self.chance.sample(held := self.current("executed"), min(2, len(held)))
        more["on_stale"] = self.chance.choice(["fail", "certify"])
        domain = DOMAINS[int(intent.partition(":")[2]) % len(DOMAINS)]
        verdict = self.world.fence.prepare(self.world.request(intent, domain=domain, **more))
        if isinstance(verdict, Fresh):
            self.tickets.append(verdict.prepared)

    def fenced(self) -> str:
        return self.chance.choice(self.current("failed", "aborted"))

    def judge(self, intent: str, outcome: str, **more: Any) -> None:
        attempt = self.world.fence.status(intent).attempt
        self.world.fence.reconcile(intent, attempt=attempt, outcome=outcome, evidence=1, operator="o", **more)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_breaks_whoever_calls_whichever_verb(world: World, seed: int) -> None:
    walk = Walk(world, seed)
    for _ in range(60):
        walk.step()
        assert all_of(world.engine, BROKEN, n=world.namespace) == [], walk.steps
    causes = all_of(
        world.engine, "SELECT DISTINCT cause FROM effectfence.transitions WHERE namespace = :n", n=world.namespace
    )
    assert len(causes) >= 4, f"a walk that goes nowhere proves nothing: {causes}"
