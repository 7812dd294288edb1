"""Long chains of speculative effects, written as the verbs would have left them, and at once."""

# The parts that are put together here are this file's own.
# ruff: noqa: S608

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

DOMAINS: Final = 50
"""The domains that a chain's effects take turns in."""

_KEY: Final = "sha256(convert_to('link-' || n, 'UTF8'))"
_DOMAIN: Final = f"'chain-' || n %% {DOMAINS}"
_LINKS: Final = "generate_series(0, %(last)s) AS n"

WRITTEN: Final[Sequence[str]] = (
    f"""
INSERT INTO effectfence.domains (namespace, domain_key, domain, seq)
SELECT %(namespace)s, sha256(convert_to('chain-' || d, 'UTF8')), 'chain-' || d, (%(last)s - d) / {DOMAINS} + 1
FROM generate_series(0, least(%(last)s, {DOMAINS - 1})) AS d""",
    f"""
INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
SELECT %(namespace)s, {_KEY}, 'link-' || n, 1, 1, clock_timestamp() FROM {_LINKS}""",
    f"""
INSERT INTO effectfence.effects
  (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
   identity_digest, vector_clock, read_set, read_keys, read_seqs, observing, on_stale, on_lease_expiry, took_over,
   lease_seconds, admitted_at, executed_at, commit_asked, result)
SELECT %(namespace)s, {_KEY}, 1, 'executed', 2, gen_random_uuid(), 'link-' || n, sha256(convert_to({_DOMAIN}, 'UTF8')),
       {_DOMAIN}, n / {DOMAINS} + 1, 'charge_card', 'bench', '{{}}', sha256('charge'), sha256('charge'),
       '{{"bench":' || n + 1 || '}}', '[]', '{{}}', '{{}}', n > 0, 'fail', 'fence', false, 3600, clock_timestamp(),
       clock_timestamp(), false, '"done"'
FROM {_LINKS}""",
    f"""
INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, from_state, to_state, cause, actor)
SELECT %(namespace)s, {_KEY}, 1, step.version, step.before, step.after, step.cause, 'bench'
FROM {_LINKS}, (VALUES (1, NULL, 'in_flight', 'admitted'), (2, 'in_flight', 'executed', 'executed'))
  AS step (version, before, after, cause)""",
    f"""
INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
SELECT %(namespace)s, {_KEY}, 1, sha256(convert_to('link-' || n - 1, 'UTF8')), 1, 'observes'
FROM {_LINKS} WHERE n > 0""",
    # What autovacuum does within a minute or so.
    "ANALYZE effectfence.domains, effectfence.intents, effectfence.effects, effectfence.transitions, effectfence.edges",
)

WALK: Final = """
WITH RECURSIVE walk AS (
  SELECT observed_key, observed_attempt FROM effectfence.edges
  WHERE namespace = %(namespace)s AND intent_key = sha256(convert_to(%(intent)s, 'UTF8')) AND attempt = 1
  UNION
  SELECT step.observed_key, step.observed_attempt FROM walk CROSS JOIN LATERAL (
    SELECT g.observed_key, g.observed_attempt FROM effectfence.edges g
    WHERE g.namespace = %(namespace)s AND g.intent_key = walk.observed_key AND g.attempt = walk.observed_attempt
    OFFSET 0) AS step
)
SELECT count(*) FROM walk"""
"""Everything that an effect rests on, by the edges alone: not what became of it.

OFFSET 0 keeps the planner from scanning the whole table in every step, as it does for a plain join.
"""

WALK_OF_STATES: Final = """
WITH RECURSIVE walk AS (
  SELECT o.intent_key, o.attempt, o.state FROM effectfence.edges g JOIN effectfence.effects o
    ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
  WHERE g.namespace = %(namespace)s AND g.intent_key = sha256(convert_to(%(intent)s, 'UTF8')) AND g.attempt = 1
  UNION
  SELECT step.intent_key, step.attempt, step.state FROM walk CROSS JOIN LATERAL (
    SELECT o.intent_key, o.attempt, o.state FROM effectfence.edges g JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    WHERE g.namespace = %(namespace)s AND g.intent_key = walk.intent_key AND g.attempt = walk.attempt
    OFFSET 0) AS step
  WHERE walk.state <> 'committed'
)
SELECT sum(counted.members) FROM (SELECT count(*) AS members FROM walk GROUP BY state) AS counted"""
"""The same with the states, as somebody would write it who asks whether all of it is committed: the question of a commit."""


def first(_length: int) -> str:
    """The intent that all of a chain rests on."""
    return "link-0"


def last(length: int) -> str:
    """The intent that rests on all of a chain."""
    return f"link-{length - 1}"


def write_chain(connection: psycopg.Connection[Any], namespace: str, length: int) -> None:
    """So many executed effects, each of which observed the one before."""
    with connection.transaction():
        for statement in WRITTEN:
            connection.execute(statement, {"namespace": namespace, "last": length - 1})
