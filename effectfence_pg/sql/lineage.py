"""What an effect rests on, or what rests on it: a walk along the edges."""

from __future__ import annotations

from functools import cache
from typing import Final

from sqlalchemy import TextClause, text

_WALK: Final = """
WITH RECURSIVE root AS MATERIALIZED (
  SELECT c.hash, c.intent_key, c.attempt FROM effectfence.certificates c
  WHERE c.namespace = :namespace AND c.hash = :name
  UNION ALL
  SELECT c.hash, c.intent_key, c.attempt FROM effectfence.certificates c
  WHERE c.namespace = :namespace AND c.intent_key = :intent_key
  LIMIT 1
),
walk AS (
  SELECT r.intent_key, r.attempt, 0 AS depth FROM root r
  UNION
  SELECT g.{ahead}_key, g.{ahead}_attempt, w.depth + 1
  FROM walk w CROSS JOIN LATERAL (
    SELECT g.observed_key, g.observed_attempt, g.intent_key AS observer_key, g.attempt AS observer_attempt
    FROM effectfence.edges g
    WHERE g.namespace = :namespace AND g.{here}_key = w.intent_key AND g.{here_attempt} = w.attempt OFFSET 0) AS g
  WHERE w.depth < :depth
),
met AS MATERIALIZED (
  SELECT intent_key, attempt, min(depth) AS depth FROM walk GROUP BY intent_key, attempt ORDER BY depth LIMIT :members
),
nodes AS MATERIALIZED (
  SELECT m.*, e.intent, e.state, c.hash, e.domain, e.seq, e.tool, e.agent
  FROM met m
  JOIN effectfence.effects e ON e.namespace = :namespace AND e.intent_key = m.intent_key AND e.attempt = m.attempt
  LEFT JOIN effectfence.certificates c
    ON c.namespace = :namespace AND c.intent_key = m.intent_key AND c.attempt = m.attempt
)
SELECT (SELECT hash FROM root) AS root,
  (SELECT coalesce(json_agg(json_build_object(
     'intent', n.intent, 'attempt', n.attempt, 'state', n.state, 'certificate', n.hash, 'domain', n.domain, 'seq', n.seq,
     'tool', n.tool, 'agent', n.agent, 'depth', n.depth) ORDER BY n.depth, n.intent COLLATE "C", n.attempt), '[]')
   FROM nodes n) AS nodes,
  (SELECT coalesce(json_agg(json_build_object(
     'observer', json_build_array(a.intent, a.attempt), 'observed', json_build_array(b.intent, b.attempt), 'via', g.via)
     ORDER BY a.intent COLLATE "C", a.attempt, b.intent COLLATE "C", b.attempt), '[]')
   FROM nodes a
   JOIN effectfence.edges g ON g.namespace = :namespace AND g.intent_key = a.intent_key AND g.attempt = a.attempt
   JOIN nodes b ON b.intent_key = g.observed_key AND b.attempt = g.observed_attempt) AS edges"""


@cache
def lineage(*, dependents: bool = False) -> TextClause:
    """One row: the certificate that was asked for, the effects on the way, and the edges between them."""
    parts = (
        {"ahead": "observer", "here": "observed", "here_attempt": "observed_attempt"}
        if dependents
        else {"ahead": "observed", "here": "intent", "here_attempt": "attempt"}
    )
    return text(_WALK.format(**parts))
