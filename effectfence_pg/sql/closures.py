"""Walks over the edges, and what the end of an effect does to everything that rests on it."""

from typing import Final

from effectfence_pg.protocol.states import CASCADES_TO, DEAD
from effectfence_pg.sql.statements import states

BLOCKERS_SHOWN: Final = 16
"""A refusal names at most this many blockers, the nearest ones; the walk itself is not cut."""


def below(source: str) -> str:
    """What the effects of `source` observed directly.

    OFFSET 0 here and wherever a walk goes on, LIMIT 1 where there is one row: one index lookup for each row. A join may read a
    young table as a whole, and so conflict with everybody.
    """
    return f"""(
    SELECT o.intent_key, o.attempt, o.intent, o.state, o.branch_key
    FROM (
      SELECT g.observed_key, g.observed_attempt FROM effectfence.edges g
      WHERE g.namespace = :namespace AND g.intent_key = {source}.intent_key AND g.attempt = {source}.attempt
      OFFSET 0) AS step
    CROSS JOIN LATERAL (
      SELECT * FROM effectfence.effects e
      WHERE e.namespace = :namespace AND e.intent_key = step.observed_key AND e.attempt = step.observed_attempt
      LIMIT 1) AS o
  ) AS observed"""


def above(source: str) -> str:
    """What observed the effects of `source` directly, committed effects and those that end anyway left out."""
    return f"""(
    SELECT o.intent_key, o.attempt
    FROM (
      SELECT g.intent_key, g.attempt FROM effectfence.edges g
      WHERE g.namespace = :namespace AND g.observed_key = {source}.intent_key
        AND g.observed_attempt = {source}.attempt
      OFFSET 0) AS step
    CROSS JOIN LATERAL (
      SELECT * FROM effectfence.effects e
      WHERE e.namespace = :namespace AND e.intent_key = step.intent_key AND e.attempt = step.attempt
      OFFSET 0) AS o
    WHERE o.state <> 'committed' AND (o.intent_key, o.attempt) NOT IN (SELECT intent_key, attempt FROM ended)
  ) AS observer"""


def _reached(source: str) -> str:
    """The same with no more than the walk needs: what has thousands of members is compared in as few columns as can be.

    The state by a query of its own: a join would keep what it found before, and look there first, for members that come once.
    """
    return f"""(
    SELECT g.observed_key AS intent_key, g.observed_attempt AS attempt, (
      SELECT e.state FROM effectfence.effects e
      WHERE e.namespace = :namespace AND e.intent_key = g.observed_key AND e.attempt = g.observed_attempt) AS state
    FROM effectfence.edges g
    WHERE g.namespace = :namespace AND g.intent_key = {source}.intent_key AND g.attempt = {source}.attempt
    OFFSET 0) AS observed"""


CLOSURE: Final = f"""
reachable AS (
  SELECT observed.intent_key, observed.attempt, observed.state
  FROM mine CROSS JOIN LATERAL {_reached("mine")}
  WHERE mine.observing
  UNION
  SELECT observed.intent_key, observed.attempt, observed.state
  FROM reachable CROSS JOIN LATERAL {_reached("reachable")}
  WHERE reachable.state <> 'committed'
),
-- The walk is lazy: past the limit it stops, and the verdict says so. What it found is kept once.
closure AS NOT MATERIALIZED (SELECT * FROM reachable LIMIT :member_limit + 1)"""
"""Everything `mine` rests on, not itself; committed effects are members whose own past is not walked."""

TOO_LARGE: Final = "(SELECT count(*) FROM closure) > :member_limit"


def listing(source: str, condition: str) -> str:
    """The effects of `source` that meet the condition, as a JSON array of [intent, attempt, state]."""
    return f"""(
  SELECT coalesce(json_agg(json_build_array(shown.intent, shown.attempt, shown.state)), CAST('[]' AS json))
  FROM (SELECT intent, attempt, state FROM {source} WHERE {condition}
        ORDER BY intent, attempt LIMIT {BLOCKERS_SHOWN}) AS shown)"""


def _members(condition: str) -> str:
    """The members nearest to the effect that meet the condition, in the same form."""
    return f"""(
  SELECT coalesce(json_agg(json_build_array(e.intent, e.attempt, shown.state) ORDER BY e.intent, e.attempt),
                  CAST('[]' AS json))
  FROM (SELECT intent_key, attempt, state FROM closure WHERE {condition} LIMIT {BLOCKERS_SHOWN}) AS shown
  CROSS JOIN LATERAL (
    SELECT e.intent, e.attempt FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = shown.intent_key AND e.attempt = shown.attempt OFFSET 0) AS e)"""


DEAD_MEMBERS: Final = _members(f"state IN ({states(DEAD)})")
UNDECIDED_MEMBERS: Final = _members(f"state NOT IN ('committed', {states(DEAD)})")

# `ended` is made by every statement that ends effects: namespace-local rows (intent_key, attempt, domain_key, numbers,
# refenced_seq, dead). `numbers` is how far the domain advances for it, `dead` whether its dependents fall with it.

CASCADE: Final = f"""
dependents AS (
  SELECT observer.intent_key, observer.attempt, ended.intent_key AS origin_key, ended.attempt AS origin_attempt
  FROM ended CROSS JOIN LATERAL {above("ended")}
  WHERE ended.dead
  UNION
  SELECT observer.intent_key, observer.attempt, dependents.origin_key, dependents.origin_attempt
  FROM dependents CROSS JOIN LATERAL {above("dependents")}
),
doomed AS (
  -- One row per dependent whatever the number of paths, locked in one order: cascades that share dependents queue.
  SELECT target.row, target.state, origin.origin_key, origin.origin_attempt
  FROM (SELECT DISTINCT ON (intent_key, attempt) * FROM dependents
        ORDER BY intent_key, attempt, origin_key, origin_attempt) AS origin
  CROSS JOIN LATERAL (
    -- The address of a row that is locked here is where the update finds it: no second lookup, no plan to go wrong.
    SELECT e.ctid AS row, e.state FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = origin.intent_key AND e.attempt = origin.attempt
      AND e.state IN ({states(CASCADES_TO)})
    OFFSET 0 FOR NO KEY UPDATE) AS target
),
cascaded AS (
  UPDATE effectfence.effects AS effect
  SET state = 'aborted', version = effect.version + 1, failure = 'cascade',
      reason = 'something it observed was rolled back', last_operation = NULL
  FROM doomed
  WHERE effect.ctid = doomed.row
  RETURNING effect.intent_key, effect.attempt, effect.intent, effect.domain_key, effect.version, effect.state,
            doomed.state AS from_state, doomed.origin_key, doomed.origin_attempt
),
logged_cascade AS (
  INSERT INTO effectfence.transitions
    (namespace, intent_key, attempt, version, from_state, to_state, cause, actor, reason, origin_key, origin_attempt)
  SELECT :namespace, intent_key, attempt, version, from_state, 'aborted', 'cascade', :actor,
         'something it observed was rolled back', origin_key, origin_attempt
  FROM cascaded
)"""
"""Abort every live dependent of what ended, each with the origin as its cause."""

ADVANCE: Final = """
owed AS (
  SELECT domain_key, sum(numbers) AS numbers, min(refenced_seq) AS refenced_seq
  FROM (SELECT domain_key, numbers, refenced_seq FROM ended
        UNION ALL SELECT domain_key, 1, NULL FROM cascaded) AS exits
  GROUP BY domain_key
),
queued AS (
  -- Domains are locked in one order everywhere, so that nobody deadlocks.
  SELECT d.row, o.numbers, o.refenced_seq
  FROM (SELECT * FROM owed WHERE numbers > 0 ORDER BY domain_key) AS o
  CROSS JOIN LATERAL (
    SELECT d.ctid AS row FROM effectfence.domains d
    WHERE d.namespace = :namespace AND d.domain_key = o.domain_key
    OFFSET 0 FOR NO KEY UPDATE) AS d
),
advanced AS (
  UPDATE effectfence.domains AS d
  SET seq = d.seq + queued.numbers,
      -- An effect that was settled for good and is fenced again pulls the watermark below it.
      settled_seq = least(d.settled_seq, coalesce(queued.refenced_seq - 1, d.settled_seq)),
      last_operation = NULL
  FROM queued
  WHERE d.ctid = queued.row
  RETURNING d.domain_key, d.seq
)"""
"""Every exit to a dead state, every reconcile and every late completion takes a number of its domain."""

GONE: Final = """
gone AS (
  SELECT intent_key, attempt, from_state FROM cascaded
  UNION ALL
  SELECT intent_key, attempt, from_state FROM updated WHERE state = 'aborted' AND from_state <> 'aborted'
  UNION ALL
  -- Asked again, perhaps because the answer was lost: `ended` has what fell before, with no number to take.
  SELECT t.intent_key, t.attempt, t.from_state
  FROM ended CROSS JOIN LATERAL (
    SELECT * FROM effectfence.transitions t
    WHERE t.namespace = :namespace AND t.intent_key = ended.intent_key AND t.attempt = ended.attempt
      AND t.to_state = 'aborted' AND t.from_state <> 'aborted'
    ORDER BY t.version DESC LIMIT 1) AS t
  WHERE ended.numbers = 0
  UNION ALL
  SELECT t.intent_key, t.attempt, t.from_state
  FROM dependents
  JOIN ended ON ended.intent_key = dependents.origin_key AND ended.attempt = dependents.origin_attempt AND ended.numbers = 0
  CROSS JOIN LATERAL (
    SELECT * FROM effectfence.transitions t
    WHERE t.namespace = :namespace AND t.intent_key = dependents.intent_key AND t.attempt = dependents.attempt
      AND t.origin_key = dependents.origin_key AND t.origin_attempt = dependents.origin_attempt
    ORDER BY t.version DESC LIMIT 1) AS t
)"""
"""What fell, with the state before: by this call, or by the same one before."""

ROLLED_BACK: Final = """(
    -- Dependents first, whether they fell by the decision or with another one: only what has run is observed, so that
    -- what ran last rests on what ran before.
    SELECT coalesce(json_agg(json_build_array(fallen.intent, fallen.attempt, fallen.from_state, fallen.compensation,
                                              fallen.due) ORDER BY fallen.executed_at DESC NULLS FIRST,
                                              fallen.admitted_at DESC), CAST('[]' AS json))
    FROM (
      SELECT e.intent, e.attempt, gone.from_state, e.compensation, e.executed_at, e.admitted_at,
             e.result IS NOT NULL OR EXISTS (
               -- A result that this very call records is not in its snapshot.
               SELECT FROM updated u
               WHERE u.intent_key = e.intent_key AND u.attempt = e.attempt AND u.result IS NOT NULL) AS due
      FROM gone CROSS JOIN LATERAL (
        SELECT * FROM effectfence.effects e
        WHERE e.namespace = :namespace AND e.intent_key = gone.intent_key AND e.attempt = gone.attempt OFFSET 0) AS e
    ) AS fallen) AS rolled_back"""
"""The effects that an abort ended, as [intent, attempt, state before, compensation, whether a result is on record]."""
