"""commit: two short forms for what can become nothing but committed, and the whole decision."""

from functools import cache
from typing import Final

from sqlalchemy import TextClause

from effectfence_pg.sql.closures import (
    ADVANCE,
    CASCADE,
    CLOSURE,
    DEAD_MEMBERS,
    GONE,
    ROLLED_BACK,
    TOO_LARGE,
    UNDECIDED_MEMBERS,
)
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement
from effectfence_pg.sql.tickets import FOUND_FACTS, LOGGED, MINE, SEALED, SEALS, STORED, TICKET, UNDONE

_MINTED: Final = f"""
SELECT {ISOLATION}, minted.hash, minted.body, minted.minted_micros, minted.attempt AS minted_attempt, minted.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN minted ON true"""
"""What the short commits answer: the certificate, or nothing, and then the whole decision is made."""


@cache
def commit_plain() -> TextClause:
    """An effect that rests on nothing: one conditional update, the certificate and the transition.

    It matches only what can become nothing but committed; every other case is decided by `commit_decide`.
    """
    return statement(
        f"""
updated AS (
  UPDATE effectfence.effects AS e
  SET state = 'committed', version = e.version + 1, result = :result, lease_expires_at = NULL
  WHERE e.namespace = :namespace AND {TICKET.format(row="e")}
    AND e.state = 'in_flight' AND NOT e.observing AND cardinality(e.read_keys) = 0
    AND e.branch_key IS NULL AND e.undoes_key IS NULL AND {SERIALIZABLE}
  RETURNING {SEALS}, e.version, 'in_flight' AS from_state, 'committed' AS cause, true AS logs
)""",
        SEALED.format(over="NULL"),
        LOGGED.format(reason="NULL", evidence="NULL"),
        verdict=_MINTED,
    )


@cache
def commit_rested() -> TextClause:
    """One conditional update, the certificate and the transition: half of what the whole decision takes.

    It matches only what can become nothing but committed: a committed effect's closure is committed, so what was observed
    directly decides, and the read set is where it was. Every other case is decided by `commit_decide`.
    """
    return statement(
        f"""
updated AS (
  UPDATE effectfence.effects AS e
  SET state = 'committed', version = e.version + 1, result = :result, lease_expires_at = NULL, last_operation = NULL
  WHERE e.namespace = :namespace AND {TICKET.format(row="e")}
    AND e.state = 'in_flight' AND e.branch_key IS NULL AND e.undoes_key IS NULL AND {SERIALIZABLE}
    -- OFFSET 0: one index lookup for each row, as in every walk.
    AND NOT EXISTS (
      SELECT FROM (
        SELECT g.observed_key, g.observed_attempt FROM effectfence.edges g
        WHERE g.namespace = :namespace AND g.intent_key = :intent_key AND g.attempt = :attempt
        OFFSET 0) AS step
      CROSS JOIN LATERAL (
        SELECT o.state FROM effectfence.effects o
        WHERE o.namespace = :namespace AND o.intent_key = step.observed_key AND o.attempt = step.observed_attempt
        OFFSET 0) AS o
      WHERE o.state <> 'committed')
    AND (e.on_stale = 'certify' OR NOT EXISTS (
      SELECT FROM unnest(e.read_keys, e.read_seqs) AS entry (domain_key, seq)
      LEFT JOIN LATERAL (
        SELECT d.seq FROM effectfence.domains d
        WHERE d.namespace = :namespace AND d.domain_key = entry.domain_key OFFSET 0) AS d ON true
      WHERE coalesce(d.seq, 0)
        <> CASE WHEN entry.domain_key <> e.domain_key THEN entry.seq ELSE greatest(entry.seq, e.seq) END))
  RETURNING {SEALS}, e.version, 'in_flight' AS from_state, 'committed' AS cause, true AS logs
)""",
        SEALED.format(over="NULL"),
        LOGGED.format(reason="NULL", evidence="NULL"),
        verdict=_MINTED,
    )


_COMMIT_FACTS: Final = f"""
moved AS MATERIALIZED (
  -- The own domain is compared with the number that this effect reserved in it, or saw there later.
  SELECT entry.position, coalesce(d.seq, 0) AS live_seq
  FROM mine
  CROSS JOIN LATERAL unnest(mine.read_keys, mine.read_seqs) WITH ORDINALITY AS entry (domain_key, seq, position)
  LEFT JOIN LATERAL (
    SELECT d.seq FROM effectfence.domains d
    WHERE d.namespace = :namespace AND d.domain_key = entry.domain_key OFFSET 0) AS d ON true
  WHERE coalesce(d.seq, 0) <> CASE
      WHEN entry.domain_key <> mine.domain_key THEN entry.seq
      -- A verdict that is repeated does not count the number that the failure itself took.
      WHEN mine.failure = 'read_set_stale' THEN greatest(entry.seq, mine.seq) + 1
      ELSE greatest(entry.seq, mine.seq) END
),
facts AS MATERIALIZED (
  SELECT {DEAD_MEMBERS} AS dead, {UNDECIDED_MEMBERS} AS undecided, {TOO_LARGE} AS too_large,
         (SELECT coalesce(json_agg(json_build_array(position, live_seq) ORDER BY position), CAST('[]' AS json)) FROM moved)
           AS moved
)"""

_COMMIT_DECISION: Final = """
decided AS MATERIALIZED (
  SELECT mine.*, CASE
      -- What was undone, or is evidence already, is nothing new.
      WHEN mine.state = 'released' AND mine.result = :result THEN NULL
      WHEN mine.state IN ('superseded', 'released') AND EXISTS (
        SELECT FROM effectfence.transitions t
        WHERE t.namespace = :namespace AND t.intent_key = mine.intent_key AND t.attempt = mine.attempt
          AND t.cause = 'late_evidence' AND t.evidence = :result) THEN NULL
      WHEN mine.state = 'released' AND mine.is_current THEN 'failed'
      WHEN mine.state IN ('superseded', 'released') THEN mine.state
      WHEN mine.state = 'aborted' AND mine.result IS NULL THEN 'aborted'
      WHEN mine.state IN ('aborted', 'committed') THEN NULL
      WHEN mine.state = 'failed' AND mine.result IS NOT NULL THEN NULL
      WHEN mine.state = 'executed' AND mine.result <> :result THEN NULL
      WHEN mine.undoing IS NOT NULL THEN 'failed'
      WHEN json_array_length(facts.dead) > 0 OR mine.branch_state = 'aborted' THEN 'aborted'
      -- Once, at the holder's first commit: an executed effect has passed it.
      WHEN mine.state <> 'executed' AND json_array_length(facts.moved) > 0 AND mine.on_stale = 'fail' THEN 'failed'
      WHEN json_array_length(facts.undecided) > 0 OR facts.too_large OR mine.branch_state = 'open' THEN 'executed'
      ELSE 'committed' END AS next_state
  FROM mine CROSS JOIN facts
),
caused AS MATERIALIZED (
  SELECT decided.*, CASE
      WHEN state IN ('superseded', 'released') THEN 'late_evidence'
      WHEN state = 'aborted' OR undoing IS NOT NULL THEN 'reported'
      WHEN next_state = 'aborted' THEN 'closure_dead'
      WHEN next_state = 'failed' THEN 'read_set_stale'
      WHEN state = 'failed' THEN 'late_completion'
      ELSE next_state END AS cause,
    next_state = state AND (state IN ('superseded', 'released', 'aborted') OR undoing IS NOT NULL) AS keeps
  FROM decided
  WHERE next_state IS NOT NULL AND NOT (state = 'executed' AND next_state = 'executed' AND commit_asked >= :asked)
)"""

_COMMIT_WORDS: Final = """CASE d.cause
    WHEN 'late_evidence' THEN 'late evidence'
    WHEN 'closure_dead' THEN 'something it observed was rolled back'
    WHEN 'read_set_stale' THEN 'the effect did run, and its read set had moved' END"""


@cache
def commit_decide() -> TextClause:
    """The whole of commit: token, state, dead closure, read set, undecided closure, in that order."""
    return statement(
        MINE,
        CLOSURE,
        _COMMIT_FACTS,
        _COMMIT_DECISION,
        f"""
updated AS (
  UPDATE effectfence.effects AS e
  SET state = d.next_state, version = e.version + 1, lease_expires_at = NULL, last_operation = NULL,
      -- The result of an attempt that another one replaced is evidence, not the intent's result.
      result = coalesce(e.result, CASE WHEN d.next_state NOT IN ('superseded', 'released') THEN :result END),
      commit_asked = e.commit_asked OR :asked AND d.next_state = 'executed',
      executed_at = CASE WHEN d.next_state = 'executed' THEN coalesce(e.executed_at, clock_timestamp()) ELSE e.executed_at END,
      failure = CASE WHEN d.next_state IN ('committed', 'executed') THEN NULL
                     WHEN d.keeps THEN e.failure ELSE d.cause END,
      reason = CASE WHEN d.next_state IN ('committed', 'executed') THEN NULL
                    WHEN d.keeps THEN e.reason ELSE {_COMMIT_WORDS} END
  FROM caused d
  WHERE e.namespace = :namespace AND e.intent_key = d.intent_key AND e.attempt = d.attempt
  RETURNING e.*, d.state AS from_state, d.cause,
            NOT (d.state = 'executed' AND d.next_state = 'executed') AS logs, {_COMMIT_WORDS} AS words
)""",
        UNDONE,
        """
ended AS (
  SELECT intent_key, attempt, domain_key, 1 AS numbers, CASE WHEN from_state = 'released' THEN seq END AS refenced_seq,
         state IN ('failed', 'aborted') AS dead
  FROM updated
  WHERE from_state <> state AND (state IN ('failed', 'aborted') OR from_state = 'failed')
  UNION ALL SELECT intent_key, attempt, domain_key, 1, NULL, true FROM undone
  -- It fell before: there is nothing to end, but something to undo, now that it is known to have run.
  UNION ALL SELECT intent_key, attempt, domain_key, 0, NULL, true FROM mine WHERE state = 'aborted'
)""",
        CASCADE,
        GONE,
        ADVANCE,
        SEALED.format(over="NULL"),
        LOGGED.format(
            reason="words", evidence="CASE WHEN cause IN ('late_evidence', 'reported') THEN CAST(:result AS text) END"
        ),
        STORED,
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, mine.attempt IS NOT NULL AS valid, mine.observing, updated.state AS next_state,
  facts.dead, facts.undecided, facts.moved, facts.too_large, mine.undoing, {ROLLED_BACK},
  coalesce(minted.hash, stored.hash) AS hash, coalesce(minted.body, stored.body) AS body,
  coalesce(minted.minted_micros, stored.minted_micros) AS minted_micros,
  coalesce(minted.attempt, stored.attempt) AS minted_attempt,
  stored.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN mine ON true LEFT JOIN updated ON true LEFT JOIN minted ON true
  LEFT JOIN stored ON true CROSS JOIN facts""",
    )
