"""commit, abort and renew: what the holder of a ticket does after admission."""

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

TICKET: Final = """{row}.intent_key = :intent_key AND {row}.attempt = :attempt AND {row}.token = :token
    AND {row}.domain_key = :domain_key AND {row}.seq = :seq AND {row}.args_digest = :args_digest AND {row}.agent = :agent
    AND {row}.branch IS NOT DISTINCT FROM :branch"""

FOUND: Final = """
found AS MATERIALIZED (
  -- By the ticket's intent, or by its number: an edited ticket is told which field does not fit.
  SELECT e.* FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = :attempt AND e.token = :token
  UNION
  SELECT e.* FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.domain_key = :domain_key AND e.seq = :seq AND e.token = :token
)"""

UNDOING: Final = """
         CASE WHEN {row}.state IN ('failed', 'aborted') THEN (
           SELECT act.state FROM effectfence.intents undo
           CROSS JOIN LATERAL (
             SELECT act.state FROM effectfence.effects act
             WHERE act.namespace = :namespace AND act.intent_key = undo.intent_key AND act.attempt = undo.attempt
             OFFSET 0) AS act
           WHERE undo.namespace = :namespace AND undo.undoes_key = {row}.intent_key AND undo.undoes_attempt = {row}.attempt
             AND act.state <> 'released') END AS undoing"""
"""The state of the compensation whose admission closes a fenced effect to late completion, `happened` and takeover.

Until its outcome is known the effect is released by it only: run again, it would be undone by what was meant for another one.
"""


_MINE: Final = f"""
{FOUND},
mine AS MATERIALIZED (
  SELECT found.*, i.attempt = found.attempt AS is_current, b.state AS branch_state, {UNDOING.format(row="found")}
  FROM found
  CROSS JOIN LATERAL (
    SELECT i.attempt FROM effectfence.intents i
    WHERE i.namespace = :namespace AND i.intent_key = found.intent_key LIMIT 1) AS i
  LEFT JOIN LATERAL (
    SELECT b.state FROM effectfence.branches b
    WHERE b.namespace = :namespace AND b.branch_key = found.branch_key LIMIT 1) AS b ON true
  WHERE {TICKET.format(row="found")} AND {SERIALIZABLE}
)"""

SEALED: Final = """
sealed AS MATERIALIZED (
  SELECT u.intent_key, u.attempt, u.parent, effectfence.certificate_body(
           u.intent, u.parent, u.domain, u.seq, u.tool, u.args, u.result, u.vector_clock, u.read_set, u.agent) AS body
  FROM updated u WHERE u.state = 'committed'
),
minted AS (
  INSERT INTO effectfence.certificates (namespace, hash, intent_key, attempt, parent, body, minted_at, reconciled_over)
  SELECT :namespace, encode(sha256(body), 'hex'), intent_key, attempt, parent, body, clock_timestamp(), {over}
  FROM sealed
  RETURNING hash, body, minted_at, attempt, reconciled_over
)"""
"""The certificate is made from the stored row and the recorded result: what a ticket says is never hashed."""

LOGGED: Final = """
logged AS (
  INSERT INTO effectfence.transitions
    (namespace, intent_key, attempt, version, from_state, to_state, cause, actor, reason, evidence)
  SELECT :namespace, intent_key, attempt, version, from_state, state, cause, :actor, {reason}, {evidence}
  FROM updated WHERE logs
)"""

FOUND_FACTS: Final = """found.intent, found.attempt, found.state, found.domain, found.seq, found.tool, found.args_digest,
  found.agent, found.branch, found.read_set, found.result, found.failure, found.reason, found.lease_expires_at,
  found.last_operation, found.took_over"""

_STORED: Final = """stored AS (
  SELECT c.hash, c.body, c.minted_at, c.attempt, c.reconciled_over FROM mine
  JOIN effectfence.certificates c ON c.namespace = mine.namespace AND c.intent_key = mine.intent_key
)"""


SEALS: Final = """e.intent_key, e.attempt, e.state, e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
    e.vector_clock, e.read_set, e.agent"""


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
        verdict=f"""
SELECT {ISOLATION}, minted.hash, minted.body, minted.minted_at, minted.attempt AS minted_attempt, minted.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN minted ON true""",
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


UNDONE: Final = """
undone AS (
  -- The commit of a compensation releases what it undoes, in the same transaction.
  UPDATE effectfence.effects AS e
  SET state = 'released', version = e.version + 1, lease_expires_at = NULL, failure = 'compensated',
      reason = 'it was compensated', last_operation = NULL
  FROM effectfence.effects before, updated u
  WHERE u.state = 'committed' AND u.undoes_key IS NOT NULL
    AND e.namespace = :namespace AND e.intent_key = u.undoes_key AND e.attempt = u.undoes_attempt
    AND before.namespace = e.namespace AND before.intent_key = e.intent_key AND before.attempt = e.attempt
    AND before.state IN ('failed', 'aborted')
  RETURNING e.intent_key, e.attempt, e.domain_key, e.version, before.state AS from_state,
            u.intent_key AS origin_key, u.attempt AS origin_attempt
),
logged_undone AS (
  INSERT INTO effectfence.transitions
    (namespace, intent_key, attempt, version, from_state, to_state, cause, actor, reason, origin_key, origin_attempt)
  SELECT :namespace, intent_key, attempt, version, from_state, 'released', 'compensated', :actor, 'it was compensated',
         origin_key, origin_attempt FROM undone
)"""


@cache
def commit_decide() -> TextClause:
    """The whole of commit: token, state, dead closure, read set, undecided closure, in that order."""
    return statement(
        _MINE,
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
        _STORED,
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, mine.attempt IS NOT NULL AS valid, mine.observing, updated.state AS next_state,
  facts.dead, facts.undecided, facts.moved, facts.too_large, mine.undoing, {ROLLED_BACK},
  coalesce(minted.hash, stored.hash) AS hash, coalesce(minted.body, stored.body) AS body,
  coalesce(minted.minted_at, stored.minted_at) AS minted_at, coalesce(minted.attempt, stored.attempt) AS minted_attempt,
  stored.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN mine ON true LEFT JOIN updated ON true LEFT JOIN minted ON true
  LEFT JOIN stored ON true CROSS JOIN facts""",
    )


@cache
def abort() -> TextClause:
    """The holder gives up: unknown outcome fences, a known absence of effect releases, a recorded result is rolled back."""
    return statement(
        _MINE,
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
        _STORED,
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, mine.attempt IS NOT NULL AS valid, updated.state AS next_state,
  {ROLLED_BACK},
  stored.hash, stored.body, stored.minted_at, stored.attempt AS minted_attempt, stored.reconciled_over
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
SELECT {ISOLATION}, {FOUND_FACTS}, updated.lease_expires_at AS renewed_until
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN updated ON true""",
    )
