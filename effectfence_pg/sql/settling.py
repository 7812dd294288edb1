"""Settling: what callers may no longer be alive to do, found and done in batches."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.protocol.states import DEAD
from effectfence_pg.sql.closures import ADVANCE, CASCADE, below
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement, states
from effectfence_pg.sql.tickets import LOGGED, SEALED, UNDONE


@cache
def undecided() -> TextClause:
    """Executed effects that settling may be able to decide. A plain read, like the one for expired leases."""
    return statement(
        verdict="""
SELECT coalesce(array_agg(due.intent_key), '{}') AS keys, coalesce(array_agg(due.attempt), '{}') AS attempts
FROM (
  SELECT e.intent_key, e.attempt FROM effectfence.effects e
  LEFT JOIN effectfence.branches b ON b.namespace = e.namespace AND b.branch_key = e.branch_key
  WHERE e.namespace = :namespace AND e.state = 'executed' AND coalesce(b.state, 'none') <> 'open'
    AND (EXISTS (
           SELECT FROM effectfence.edges g
           JOIN effectfence.effects o
             ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
           WHERE g.namespace = e.namespace AND g.intent_key = e.intent_key AND g.attempt = e.attempt
             AND o.state IN ('failed', 'aborted', 'released', 'superseded'))
         OR e.commit_asked AND NOT EXISTS (
           SELECT FROM effectfence.edges g
           JOIN effectfence.effects o
             ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
           WHERE g.namespace = e.namespace AND g.intent_key = e.intent_key AND g.attempt = e.attempt
             AND o.state <> 'committed'))
  ORDER BY e.executed_at, e.intent_key LIMIT :row_limit) AS due"""
    )


@cache
def settle() -> TextClause:
    """Commit the executed effects of the list whose closure is committed by now, abort those with a dead member.

    A committed effect's closure is committed, so what an effect observed directly decides about all of its closure.
    """
    return statement(
        f"""
candidates AS MATERIALIZED (
  SELECT e.intent_key, e.attempt, e.commit_asked, coalesce(b.state, 'none') AS branch_state,
         array_agg(CAST(observed.state AS text)) FILTER (WHERE observed.state IS NOT NULL) AS observed_states
  FROM unnest(:keys, :attempts) AS due (intent_key, attempt)
  CROSS JOIN LATERAL (
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = due.intent_key AND e.attempt = due.attempt LIMIT 1) AS e
  LEFT JOIN LATERAL (
    SELECT b.state FROM effectfence.branches b
    WHERE b.namespace = :namespace AND b.branch_key = e.branch_key LIMIT 1) AS b ON true
  LEFT JOIN LATERAL {below("e")} ON true
  WHERE e.state = 'executed' AND {SERIALIZABLE}
  GROUP BY e.intent_key, e.attempt, e.commit_asked, b.state
),
locked AS (
  SELECT e.row, e.state,
         CASE WHEN c.observed_states && ARRAY[{states(DEAD)}] OR c.branch_state = 'aborted' THEN 'aborted'
              ELSE 'committed' END AS outcome
  FROM (SELECT * FROM candidates ORDER BY intent_key, attempt) AS c
  CROSS JOIN LATERAL (
    SELECT e.ctid AS row, e.state FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
    OFFSET 0 FOR NO KEY UPDATE) AS e
  WHERE c.observed_states && ARRAY[{states(DEAD)}] OR c.branch_state = 'aborted'
     OR c.commit_asked AND c.branch_state <> 'open' AND coalesce('committed' = ALL (c.observed_states), true)
),
updated AS (
  UPDATE effectfence.effects AS e
  SET state = locked.outcome, version = e.version + 1, last_operation = NULL,
      failure = CASE WHEN locked.outcome = 'aborted' THEN 'closure_dead' END,
      reason = CASE WHEN locked.outcome = 'aborted' THEN 'something it observed was rolled back' END
  FROM locked
  WHERE e.ctid = locked.row
  RETURNING e.*, 'executed' AS from_state, true AS logs,
            CASE WHEN locked.outcome = 'aborted' THEN 'closure_dead' ELSE 'settled' END AS cause
),
{UNDONE.strip()},
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead
  FROM updated WHERE state = 'aborted'
  UNION ALL SELECT intent_key, attempt, domain_key, 1, NULL, true FROM undone
)""",
        CASCADE,
        ADVANCE,
        SEALED.format(over="NULL"),
        LOGGED.format(reason="reason", evidence="NULL"),
        verdict=f"""
SELECT {ISOLATION}, (SELECT count(*) FROM updated WHERE state = 'committed') AS committed,
  (SELECT count(*) FROM updated WHERE state = 'aborted') + (SELECT count(*) FROM cascaded) AS aborted""",
    )
