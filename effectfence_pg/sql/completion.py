"""abort and renew: what else the holder of a ticket does after admission."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.sql.closures import ADVANCE, CASCADE, GONE, ROLLED_BACK
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, micros, statement
from effectfence_pg.sql.tickets import FOUND, FOUND_FACTS, LOGGED, MINE, STORED, TICKET


@cache
def abort() -> TextClause:
    """The holder gives up: unknown outcome fences, a known absence of effect releases, a recorded result is rolled back."""
    return statement(
        MINE,
        """
decided AS MATERIALIZED (
  SELECT mine.*, CASE
      WHEN state IN ('superseded', 'released') AND (state = 'released' AND :no_effect OR EXISTS (
        SELECT FROM effectfence.transitions t
        WHERE t.namespace = :namespace AND t.intent_key = mine.intent_key AND t.attempt = mine.attempt
          AND t.cause = 'late_evidence' AND t.reason = :reason)) THEN NULL
      WHEN state IN ('superseded', 'released') THEN state
      WHEN state = 'executed' THEN 'aborted'
      WHEN state = 'in_flight' AND :no_effect AND NOT took_over THEN 'released'
      WHEN state = 'in_flight' THEN 'failed'
      -- After a takeover the holder speaks for its own attempt only: the one before may have acted.
      WHEN state IN ('failed', 'aborted') AND result IS NULL AND :no_effect AND NOT took_over
        AND coalesce(undoing, 'committed') = 'committed' THEN 'released'
      WHEN state = 'aborted' AND lease_expires_at IS NOT NULL THEN 'aborted' END AS next_state
  FROM mine
),
caused AS MATERIALIZED (
  SELECT decided.*, CASE
      WHEN state IN ('superseded', 'released') THEN 'late_evidence'
      WHEN next_state = 'released' THEN 'no_effect'
      WHEN state = 'executed' THEN 'rolled_back'
      WHEN state = 'aborted' THEN 'reported'
      ELSE 'outcome_unknown' END AS cause
  FROM decided WHERE next_state IS NOT NULL
),
updated AS (
  UPDATE effectfence.effects AS e
  SET state = d.next_state, version = e.version + 1, lease_expires_at = NULL, last_operation = :operation,
      failure = CASE WHEN d.state = d.next_state THEN e.failure ELSE d.cause END,
      reason = CASE WHEN d.state = d.next_state THEN e.reason ELSE :reason END
  FROM caused d
  WHERE e.namespace = :namespace AND e.intent_key = d.intent_key AND e.attempt = d.attempt
  RETURNING e.*, d.state AS from_state, d.cause, true AS logs
),
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead
  FROM updated WHERE from_state <> state
  UNION ALL
  -- The same call again, because its answer was lost: nothing is left to end, but the answer is the same.
  SELECT intent_key, attempt, domain_key, 0, NULL, true FROM mine WHERE last_operation = :operation
)""",
        CASCADE,
        GONE,
        ADVANCE,
        LOGGED.format(reason=":reason", evidence="NULL"),
        STORED,
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, mine.attempt IS NOT NULL AS valid, updated.state AS next_state,
  {ROLLED_BACK},
  stored.hash, stored.body, stored.minted_micros, stored.attempt AS minted_attempt, stored.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN mine ON true LEFT JOIN updated ON true LEFT JOIN stored ON true""",
    )


@cache
def renew() -> TextClause:
    """Extend the lease by its own length from now; only an effect in flight has one to extend."""
    return statement(
        FOUND,
        f"""
held AS MATERIALIZED (
  -- Locked before the clock is read: an UPDATE computes its values before it waits for the row.
  SELECT e.namespace, e.intent_key, e.attempt FROM effectfence.effects e
  WHERE e.namespace = :namespace AND {TICKET.format(row="e")} AND e.state = 'in_flight' AND {SERIALIZABLE}
  FOR NO KEY UPDATE
),
updated AS (
  UPDATE effectfence.effects AS e
  SET lease_expires_at = greatest(e.lease_expires_at, clock_timestamp() + e.lease_seconds * interval '1 second'),
      renewed_at = clock_timestamp(), version = e.version + 1
  FROM held WHERE e.namespace = held.namespace AND e.intent_key = held.intent_key AND e.attempt = held.attempt
  RETURNING e.lease_expires_at
)""",
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, {micros("updated.lease_expires_at")} AS renewed_micros
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN updated ON true""",
    )
