"""Decisions about speculative effects: promote all of a closure or none of it, or roll it back."""

from functools import cache
from typing import Final

from sqlalchemy import TextClause

from effectfence_pg.protocol.states import CASCADES_TO, DEAD, State
from effectfence_pg.sql.closures import ADVANCE, CASCADE, GONE, ROLLED_BACK, below, listing
from effectfence_pg.sql.statements import CERTIFIED, CURRENT, ISOLATION, SERIALIZABLE, statement, states
from effectfence_pg.sql.tickets import LOGGED, SEALED, UNDONE

_BY_BRANCH: Final = """
plan AS MATERIALIZED (
  SELECT b.state, b.version FROM effectfence.branches b WHERE b.namespace = :namespace AND b.branch_key = :branch_key
),
seeds AS MATERIALIZED (
  SELECT e.intent_key, e.attempt, e.intent, e.state, e.observing, e.branch_key
  FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.branch_key = :branch_key AND e.state NOT IN ('released', 'superseded')
    AND EXISTS (SELECT FROM plan WHERE state = 'open')
),
decided_before AS (
  SELECT e.intent_key, e.attempt, e.domain_key, e.state
  FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.branch_key = :branch_key AND e.last_operation = :operation
    AND EXISTS (SELECT FROM plan WHERE state <> 'open')
)"""

_BY_INTENT: Final = f"""
plan AS MATERIALIZED (SELECT CAST(NULL AS text) AS state, CAST(NULL AS bigint) AS version WHERE false),
seeds AS MATERIALIZED (
  SELECT e.intent_key, e.attempt, e.intent, e.state, e.observing, e.branch_key
  FROM {CURRENT}
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key
),
decided_before AS (
  SELECT e.intent_key, e.attempt, e.domain_key, e.state FROM {CURRENT}
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key AND e.last_operation = :operation
)"""

_MEMBERS: Final = """
reachable AS (
  SELECT intent_key, attempt, intent, state, branch_key FROM seeds
  UNION
  SELECT observed.intent_key, observed.attempt, observed.intent, observed.state, observed.branch_key
  FROM reachable CROSS JOIN LATERAL {observed}
  WHERE reachable.state <> 'committed'
),
members AS MATERIALIZED (
  SELECT reachable.*, b.state AS branch_state
  FROM (SELECT * FROM reachable LIMIT :member_limit + 1) AS reachable
  LEFT JOIN LATERAL (
    SELECT b.state FROM effectfence.branches b
    WHERE b.namespace = :namespace AND b.branch_key = reachable.branch_key AND {foreign_branch} LIMIT 1) AS b ON true
)"""


_BEFORE: Final = """
-- The same call again, because its answer was lost: what it decided bears its mark.
committed_before AS (
  SELECT intent_key, attempt FROM decided_before WHERE state = 'committed'
  UNION
  SELECT o.intent_key, o.attempt
  FROM committed_before
  CROSS JOIN LATERAL (
    SELECT g.observed_key, g.observed_attempt FROM effectfence.edges g
    WHERE g.namespace = :namespace AND g.intent_key = committed_before.intent_key
      AND g.attempt = committed_before.attempt
    OFFSET 0) AS step
  CROSS JOIN LATERAL (
    SELECT e.intent_key, e.attempt, e.last_operation FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = step.observed_key AND e.attempt = step.observed_attempt
    LIMIT 1) AS o
  WHERE o.last_operation = :operation
)"""


def _promotion(seeds: str, *, foreign_branch: str, falls: tuple[State, ...]) -> TextClause:
    """`falls`: the states in which a seed is aborted when a member is dead."""
    # A committed member stands whatever became of its branch. Most members are of no other branch: their state is null.
    dead = f"state IN ({states(DEAD)}) OR state <> 'committed' AND coalesce(branch_state = 'aborted', false)"
    waits = "state = 'in_flight' OR state <> 'committed' AND coalesce(branch_state = 'open', false)"
    return statement(
        seeds,
        _BEFORE,
        _MEMBERS.format(foreign_branch=foreign_branch, observed=below("reachable")),
        f"""
facts AS MATERIALIZED (
  SELECT {listing("members", dead)} AS dead, {listing("members", waits)} AS waiting,
         (SELECT count(*) FROM members) > :member_limit AS too_large
),
verdict AS MATERIALIZED (
  -- All of it commits, all of it aborts, or nothing moves.
  SELECT CASE WHEN too_large THEN 'too_large'
              WHEN json_array_length(dead) > 0 THEN 'aborted'
              WHEN json_array_length(waiting) > 0 THEN 'pending'
              ELSE 'committed' END AS outcome
  FROM facts WHERE {SERIALIZABLE}
),
locked AS (
  SELECT e.row, e.state, verdict.outcome
  FROM verdict CROSS JOIN (
    SELECT intent_key, attempt, (intent_key, attempt) IN (SELECT intent_key, attempt FROM seeds) AS is_seed
    FROM members ORDER BY intent_key, attempt) AS member
  CROSS JOIN LATERAL (
    SELECT e.ctid AS row, e.state FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = member.intent_key AND e.attempt = member.attempt
      AND (verdict.outcome = 'committed' AND e.state = 'executed'
           -- What the seeds rest on did not observe what died, and stands.
           OR verdict.outcome = 'aborted' AND e.state IN ({states(falls)}) AND member.is_seed)
    OFFSET 0 FOR NO KEY UPDATE) AS e
),
updated AS (
  UPDATE effectfence.effects AS e
  SET state = locked.outcome, version = e.version + 1, last_operation = :operation,
      failure = CASE WHEN locked.outcome = 'aborted' THEN 'closure_dead' END,
      reason = CASE WHEN locked.outcome = 'aborted' THEN 'a member of its closure was rolled back' END
  FROM locked
  WHERE e.ctid = locked.row
  RETURNING e.*, locked.state AS from_state, true AS logs,
            CASE WHEN locked.outcome = 'aborted' THEN 'closure_dead' ELSE 'promoted' END AS cause
),
decided AS (
  UPDATE effectfence.branches AS b
  SET state = verdict.outcome, version = b.version + 1, decided_at = clock_timestamp(), actor = :actor
  FROM verdict, plan
  WHERE b.namespace = :namespace AND b.branch_key = :branch_key AND b.version = plan.version AND b.state = 'open'
    AND verdict.outcome IN ('committed', 'aborted')
  RETURNING b.state
),
{UNDONE.strip()},
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead
  FROM updated WHERE state = 'aborted'
  UNION ALL SELECT intent_key, attempt, domain_key, 1, NULL, true FROM undone
  UNION ALL SELECT intent_key, attempt, domain_key, 0, NULL, true FROM decided_before WHERE state = 'aborted'
)""",
        CASCADE,
        GONE,
        ADVANCE,
        SEALED.format(over="NULL"),
        LOGGED.format(reason="reason", evidence="NULL"),
        verdict=f"""
SELECT {ISOLATION}, (SELECT state FROM plan) AS branch_state, (SELECT outcome FROM verdict) AS outcome,
  (SELECT count(*) FROM seeds) AS seeds, (SELECT min(attempt) FROM seeds) AS seed_attempt,
  (SELECT count(*) FROM updated WHERE state = 'committed') + (SELECT count(*) FROM committed_before) AS committed,
  (SELECT count(*) FROM minted) AS minted, facts.dead, facts.waiting, {ROLLED_BACK}
FROM facts""",
    )


@cache
def promote_branch() -> TextClause:
    """Every effect of a branch and of its closure commits in one transaction, or none does."""
    return _promotion(_BY_BRANCH, foreign_branch="b.branch_key <> :branch_key", falls=CASCADES_TO)


@cache
def promote_intent() -> TextClause:
    """The same for an intent without a branch: one with a branch is promoted by its branch only."""
    # One that is fenced is dead itself, and needs no other end.
    return _promotion(_BY_INTENT, foreign_branch="true", falls=(State.IN_FLIGHT, State.EXECUTED)).bindparams(
        branch_key=None
    )


_ABORT: Final = f"""
updated AS (
  UPDATE effectfence.effects AS e
  SET state = 'aborted', version = e.version + 1, failure = '{{cause}}', reason = :reason, last_operation = :operation
  FROM locked
  WHERE e.ctid = locked.row
  RETURNING e.*, locked.state AS from_state, '{{cause}}' AS cause, true AS logs
),
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead FROM updated
  UNION ALL SELECT intent_key, attempt, domain_key, 0, NULL, true FROM fallen_before
),
{CASCADE.strip()},
{GONE.strip()},
{ADVANCE.strip()},
{LOGGED.format(reason=":reason", evidence="NULL").strip()}"""


@cache
def abort_branch() -> TextClause:
    """Roll back every undecided effect of a branch, and what rests on them. An effect in flight keeps its lease."""
    return statement(
        f"""
plan AS MATERIALIZED (
  SELECT b.state, b.version FROM effectfence.branches b WHERE b.namespace = :namespace AND b.branch_key = :branch_key
),
decided AS (
  UPDATE effectfence.branches AS b
  SET state = 'aborted', version = b.version + 1, decided_at = clock_timestamp(), actor = :actor, reason = :reason
  FROM plan
  WHERE b.namespace = :namespace AND b.branch_key = :branch_key AND b.version = plan.version AND plan.state = 'open'
    AND {SERIALIZABLE}
  RETURNING b.branch_key
),
locked AS (
  SELECT e.ctid AS row, e.state
  FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.branch_key = :branch_key AND e.state IN ({states(CASCADES_TO)})
    AND EXISTS (SELECT FROM decided)
  ORDER BY e.intent_key, e.attempt
  FOR NO KEY UPDATE OF e
),
fallen_before AS (
  SELECT e.intent_key, e.attempt, e.domain_key
  FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.branch_key = :branch_key AND e.state = 'aborted'
    AND EXISTS (SELECT FROM plan WHERE state = 'aborted')
)""",
        _ABORT.format(cause="branch_aborted"),
        verdict=f"""
SELECT {ISOLATION}, (SELECT state FROM plan) AS branch_state, EXISTS (SELECT FROM decided) AS decided, {ROLLED_BACK}""",
    )


@cache
def abort_intent() -> TextClause:
    """Roll back one attempt without its holder's ticket, and what rests on it. A committed one is never reached."""
    return statement(
        f"""
mine AS MATERIALIZED (
  SELECT e.intent_key, e.domain_key, e.intent, e.attempt, e.state, i.attempt AS current_attempt,
         c.hash, c.body, c.minted_micros, c.reconciled_over
  FROM {CURRENT}{CERTIFIED}
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key
),
locked AS (
  SELECT e.ctid AS row, e.state
  FROM mine JOIN effectfence.effects e
    ON e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = mine.attempt
  WHERE mine.attempt = :attempt AND e.state IN ({states(CASCADES_TO)}) AND {SERIALIZABLE}
  FOR NO KEY UPDATE OF e
),
fallen_before AS (
  SELECT mine.intent_key, mine.attempt, mine.domain_key FROM mine WHERE mine.attempt = :attempt AND mine.state = 'aborted'
)""",
        _ABORT.format(cause="intent_aborted"),
        verdict=f"""
SELECT {ISOLATION}, mine.*, EXISTS (SELECT FROM updated) AS moved, {ROLLED_BACK}
FROM (SELECT 1) AS one LEFT JOIN mine ON true""",
    )


@cache
def target() -> TextClause:
    """What a compensation would undo."""
    return statement(
        verdict="""
SELECT e.intent, e.domain, e.compensation
FROM (SELECT 1) AS one
LEFT JOIN effectfence.effects e
  ON e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = :attempt"""
    )
