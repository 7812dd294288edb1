"""Unknown outcomes: expired leases are fenced, and operators say what happened."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.protocol.states import DEAD
from effectfence_pg.sql.closures import ADVANCE, CASCADE, CLOSURE, DEAD_MEMBERS, TOO_LARGE, UNDECIDED_MEMBERS
from effectfence_pg.sql.statements import CURRENT, ISOLATION, SERIALIZABLE, statement, states
from effectfence_pg.sql.tickets import LOGGED, SEALED, UNDOING, UNDONE


@cache
def fence_expired() -> TextClause:
    """Fence every effect of the list whose lease ran out and whose outcome is therefore unknown."""
    return statement(
        f"""
mine AS MATERIALIZED (
  SELECT e.row, e.state
  FROM (SELECT * FROM unnest(:keys, :attempts) AS given (intent_key, attempt) ORDER BY intent_key, attempt) AS due
  CROSS JOIN LATERAL (
    SELECT e.ctid AS row, e.state FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = due.intent_key AND e.attempt = due.attempt
      AND e.state = 'in_flight' AND e.lease_expires_at <= clock_timestamp() AND {SERIALIZABLE}
    OFFSET 0 FOR NO KEY UPDATE) AS e
),
updated AS (
  UPDATE effectfence.effects AS e
  SET state = 'failed', version = e.version + 1, lease_expires_at = NULL, failure = 'lease_expired',
      reason = 'lease expired, outcome unknown', last_operation = NULL
  FROM mine
  WHERE e.ctid = mine.row
  RETURNING e.*, mine.state AS from_state, 'lease_expired' AS cause, true AS logs
),
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead FROM updated
)""",
        CASCADE,
        ADVANCE,
        LOGGED.format(reason="reason", evidence="NULL"),
        verdict=f"SELECT {ISOLATION}, (SELECT count(*) FROM updated) AS fenced",
    )


@cache
def expired() -> TextClause:
    """The effects whose lease ran out. A plain read: in a serializable transaction its scan would conflict with everybody."""
    return statement(
        verdict="""
SELECT coalesce(array_agg(due.intent_key), '{}') AS keys, coalesce(array_agg(due.attempt), '{}') AS attempts
FROM (SELECT intent_key, attempt FROM effectfence.effects
      WHERE namespace = :namespace AND state = 'in_flight' AND lease_expires_at <= clock_timestamp()
      ORDER BY intent_key, attempt LIMIT :row_limit) AS due"""
    )


@cache
def reconcile() -> TextClause:
    """What an operator says about one attempt, obeying the commit predicate unless told to mint over it."""
    return statement(
        f"""
mine AS MATERIALIZED (
  SELECT e.*, i.attempt AS current_attempt, e.lease_expires_at > clock_timestamp() AS lease_live,
         coalesce(e.result, :result) AS known_result, b.state AS branch_state, {UNDOING.format(row="e")}
  FROM {CURRENT}
  LEFT JOIN LATERAL (
    SELECT b.state FROM effectfence.branches b
    WHERE b.namespace = :namespace AND b.branch_key = e.branch_key LIMIT 1) AS b ON true
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key AND {SERIALIZABLE}
)""",
        CLOSURE,
        f"""
facts AS MATERIALIZED (
  SELECT {DEAD_MEMBERS} AS dead, {UNDECIDED_MEMBERS} AS undecided, {TOO_LARGE} AS too_large,
         EXISTS (SELECT FROM closure WHERE state IN ({states(DEAD)}))
           OR EXISTS (SELECT FROM mine WHERE branch_state = 'aborted') AS is_over
),
decided AS MATERIALIZED (
  SELECT mine.*, CASE
      WHEN mine.attempt <> :attempt OR mine.state NOT IN ('failed', 'aborted') OR coalesce(mine.lease_live, false) THEN NULL
      -- A result on record says that the tool ran: it can be compensated, not unsaid.
      WHEN :outcome = 'did_not_happen' AND mine.result IS NOT NULL THEN NULL
      WHEN :outcome <> 'happened' AND coalesce(mine.undoing, 'committed') <> 'committed' THEN NULL
      WHEN :outcome <> 'happened' THEN 'released'
      WHEN mine.known_result IS NULL OR mine.known_result <> coalesce(:result, mine.known_result) THEN NULL
      WHEN mine.undoing IS NOT NULL THEN NULL
      WHEN facts.is_over AND NOT :over THEN NULL
      WHEN facts.is_over THEN 'committed'
      WHEN json_array_length(facts.undecided) > 0 OR facts.too_large OR mine.branch_state = 'open' THEN 'executed'
      ELSE 'committed' END AS next_state,
    facts.dead, facts.undecided, facts.is_over
  FROM mine CROSS JOIN facts
),
updated AS (
  UPDATE effectfence.effects AS e
  SET state = d.next_state, version = e.version + 1, lease_expires_at = NULL, last_operation = :operation,
      result = CASE WHEN d.next_state = 'released' THEN e.result ELSE d.known_result END,
      commit_asked = e.commit_asked OR d.next_state = 'executed',
      executed_at = CASE WHEN d.next_state = 'executed' THEN coalesce(e.executed_at, clock_timestamp()) ELSE e.executed_at END,
      failure = CASE WHEN d.next_state = 'released' THEN 'reconciled_' || :outcome END,
      reason = CASE WHEN d.next_state = 'released' THEN 'reconciled: ' || replace(:outcome, '_', ' ') END
  FROM decided d
  WHERE e.namespace = :namespace AND e.intent_key = d.intent_key AND e.attempt = d.attempt AND d.next_state IS NOT NULL
  RETURNING e.*, d.state AS from_state, true AS logs, d.is_over, d.dead,
            CASE WHEN d.is_over AND d.next_state = 'committed' THEN 'reconciled_over'
                 ELSE 'reconciled_' || :outcome END AS cause
),
{UNDONE},
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, state = 'released' AS dead
  FROM updated
  UNION ALL SELECT intent_key, attempt, domain_key, 1, NULL, true FROM undone
)""",
        CASCADE,
        ADVANCE,
        SEALED.format(
            over="""(SELECT jsonb_build_object('operator', CAST(:actor AS text), 'blockers', u.dead)
           FROM updated u WHERE u.is_over)"""
        ),
        LOGGED.format(reason="reason", evidence=":evidence"),
        verdict=f"""
SELECT {ISOLATION}, mine.intent, mine.attempt, mine.current_attempt, mine.state, mine.agent, mine.admitted_at, mine.result,
  mine.failure, mine.reason, mine.lease_live, mine.lease_expires_at, mine.token, mine.known_result,
  greatest(extract(epoch FROM mine.lease_expires_at - clock_timestamp()), 0) AS lease_left_seconds,
  (SELECT e.last_operation FROM effectfence.effects e
   WHERE e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = :attempt) AS judged_by,
  decided.next_state, facts.dead, facts.undecided, mine.undoing
FROM (SELECT 1) AS one LEFT JOIN mine ON true LEFT JOIN decided ON true CROSS JOIN facts""",
    )
