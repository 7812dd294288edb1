"""Plans: effects that ran and wait for a decision, and what of the promises about them does not hold in the database."""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sa

from effectfence_pg import Held, PreparedEffect
from tests.support.rows import all_of, change
from tests.support.world import World

UNDO = {"tool": "refund", "args": {"cents": 4900}}

UNRECOVERABLE = """
SELECT observer.intent, observed.intent, observed.state
FROM effectfence.edges g
JOIN effectfence.effects observer USING (namespace, intent_key, attempt)
JOIN effectfence.effects observed ON observed.namespace = g.namespace AND observed.intent_key = g.observed_key
  AND observed.attempt = g.observed_attempt
LEFT JOIN effectfence.certificates c
  ON c.namespace = g.namespace AND c.intent_key = g.intent_key AND c.attempt = g.attempt
WHERE g.namespace = :namespace AND observer.state = 'committed' AND observed.state <> 'committed'
  AND c.reconciled_over IS NULL"""
"""I4: committed effects that observed one that is not. What was observed directly decides: its own past is its own row here."""

STORMS = UNRECOVERABLE.replace(
    "observer.state = 'committed' AND observed.state <> 'committed'",
    "observer.state IN ('in_flight', 'executed', 'committed') "
    "AND observed.state IN ('failed', 'aborted', 'released', 'superseded')",
)
"""I5: live or committed effects that observed a dead one."""

SLICES = """
SELECT b.branch, b.state, e.intent, e.state FROM effectfence.branches b
JOIN effectfence.effects e USING (namespace, branch_key)
LEFT JOIN effectfence.certificates c ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt
WHERE b.namespace = :namespace AND (b.state = 'aborted' AND e.state IN ('in_flight', 'executed', 'committed')
  OR b.state <> 'aborted' AND e.state IN ('executed', 'committed') AND (e.state = 'committed') <> (b.state = 'committed'))
  AND c.reconciled_over IS NULL"""
"""Effects that their branch's decision passed by: of a branch all effects commit or none does."""


def broken(engine: sa.Engine, namespace: str) -> list[Any]:
    """Everything in the namespace that contradicts I4, I5, or a branch's decision."""
    return [row for query in (UNRECOVERABLE, STORMS, SLICES) for row in all_of(engine, query, namespace=namespace)]


def ran(world: World, intent: str, result: Any = "done", **more: Any) -> PreparedEffect:
    """The ticket of a new effect whose tool ran and that waits: its branch or something it observed is undecided."""
    prepared = world.admit(intent, **more)
    assert isinstance(world.fence.commit(prepared, result, closure="hold"), Held)
    return prepared


def decided(world: World, intent: str, **more: Any) -> PreparedEffect:
    """The ticket of an effect without a branch that waits, although all that it observed is committed by now."""
    ran(world, f"before:{intent}", branch=f"plan:{intent}")
    prepared = ran(world, intent, observes=[f"before:{intent}"], **more)
    world.fence.promote(branch=f"plan:{intent}")
    return prepared


def states(world: World, *intents: str) -> dict[str, str]:
    return {intent: world.state(intent) for intent in intents}


def falls(world: World) -> dict[str, tuple[str, str | None, str]]:
    """For every effect that was aborted: cause, the origin's intent if it fell with another one, and who acted."""
    return {
        intent: (cause, origin, actor)
        for intent, cause, origin, actor in all_of(
            world.engine,
            "SELECT e.intent, t.cause, o.intent, t.actor FROM effectfence.transitions t "
            "JOIN effectfence.effects e USING (namespace, intent_key, attempt) "
            "LEFT JOIN effectfence.intents o ON o.namespace = t.namespace AND o.intent_key = t.origin_key "
            "WHERE t.namespace = :n AND t.to_state = 'aborted' AND t.from_state <> 'aborted'",
            n=world.namespace,
        )
    }


def branch_state(world: World, branch: str) -> tuple[str, str | None, str | None]:
    """Where a branch stands, who decided and why."""
    [row] = all_of(
        world.engine,
        "SELECT state, actor, reason FROM effectfence.branches WHERE namespace = :n AND branch = :b "
        "AND (decided_at IS NULL) = (state = 'open')",
        n=world.namespace,
        b=branch,
    )
    return row


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def chain_of(world: World, length: int, *, domains: int = 50) -> None:
    """Write `length` executed effects behind the library's back, each of which observed the one before; the first is `link:0`."""
    numbered = "generate_series(0, :last) AS n"
    key = "sha256(convert_to('link:' || n, 'UTF8'))"
    domain = "'chain:' || n % :domains"
    written = [
        """
INSERT INTO effectfence.domains (namespace, domain_key, domain, seq)
SELECT :namespace, sha256(convert_to('chain:' || d, 'UTF8')), 'chain:' || d, (:last - d) / :domains + 1
FROM generate_series(0, least(:last, :domains - 1)) AS d""",
        f"""
INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
SELECT :namespace, {key}, 'link:' || n, 1, 1, clock_timestamp() FROM {numbered}""",
        f"""
INSERT INTO effectfence.effects
  (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
   identity_digest, vector_clock, read_set, read_keys, read_seqs, observing, on_stale, on_lease_expiry, took_over,
   lease_seconds, admitted_at, executed_at, commit_asked, result)
SELECT :namespace, {key}, 1, 'executed', 2, gen_random_uuid(), 'link:' || n, sha256(convert_to({domain}, 'UTF8')), {domain},
       n / :domains + 1, 'charge', 'agent-a', '{{}}', :digest, :digest, '{{"agent-a":' || n + 1 || '}}', '[]', '{{}}', '{{}}',
       n > 0, 'fail', 'fence', false, 60, clock_timestamp(), clock_timestamp(), false, '"done"'
FROM {numbered}""",
        f"""
INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, from_state, to_state, cause, actor)
SELECT :namespace, {key}, 1, step.version, step.before, step.after, step.cause, 'agent-a'
FROM {numbered},
  (VALUES (1, NULL, 'in_flight', 'admitted'), (2, 'in_flight', 'executed', 'executed'))
    AS step (version, before, after, cause)""",
        f"""
INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
SELECT :namespace, {key}, 1, sha256(convert_to('link:' || n - 1, 'UTF8')), 1, 'observes' FROM {numbered} WHERE n > 0""",
    ]
    facts = {"namespace": world.namespace, "last": length - 1, "domains": domains, "digest": digest("charge")}
    for statement in written:
        used = {name: value for name, value in facts.items() if f":{name}" in statement}
        change(world.engine, statement, **used)
    for table in ("domains", "intents", "effects", "transitions", "edges"):
        change(world.engine, f"ANALYZE effectfence.{table}")
