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
  -- A day less 24 hours equals nothing: UNION meets an effect again whatever the depth, and the number of days is the depth at
  -- which it was met first. The walk is linear in the edges.
  SELECT r.intent_key, r.attempt, interval '0' AS walked FROM root r
  UNION
  SELECT g.{ahead}_key, g.{ahead}_attempt, w.walked + interval '1 day -24 hours'
  FROM walk w CROSS JOIN LATERAL (
    SELECT g.observed_key, g.observed_attempt, g.intent_key AS observer_key, g.attempt AS observer_attempt
    FROM effectfence.edges g
    WHERE g.namespace = :namespace AND g.{here}_key = w.intent_key AND g.{here_attempt} = w.attempt OFFSET 0) AS g
  WHERE date_part('day', w.walked) < :depth
),
met AS MATERIALIZED (
  SELECT intent_key, attempt, CAST(date_part('day', walked) AS integer) AS depth FROM walk ORDER BY 3 LIMIT :members
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
