"""What the statements about an admitted effect are made of: its row by the ticket, its certificate, its place in the record."""

from typing import Final

from effectfence_pg.sql.statements import SERIALIZABLE, micros

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


MINE: Final = f"""
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

SEALED: Final = f"""
sealed AS MATERIALIZED (
  SELECT u.intent_key, u.attempt, u.parent, u.args_digest, u.identity_digest, u.identity_fields,
         effectfence.certificate_body(
           u.intent, u.parent, u.domain, u.seq, u.tool, u.args, u.result, u.vector_clock, u.read_set, u.agent) AS body
  FROM updated u WHERE u.state = 'committed'
),
minted AS (
  INSERT INTO effectfence.certificates
    (namespace, hash, intent_key, attempt, parent, body, minted_at, args_digest, identity_digest, identity_fields,
     reconciled_over)
  SELECT :namespace, encode(sha256(body), 'hex'), intent_key, attempt, parent, body, clock_timestamp(), args_digest,
         identity_digest, identity_fields, {{over}}
  FROM sealed
  RETURNING hash, body, {micros("minted_at")} AS minted_micros, attempt, reconciled_over
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

STORED: Final = f"""stored AS (
  SELECT c.hash, c.body, {micros("c.minted_at")} AS minted_micros, c.attempt, c.reconciled_over FROM mine
  JOIN effectfence.certificates c ON c.namespace = mine.namespace AND c.intent_key = mine.intent_key
)"""


SEALS: Final = """e.intent_key, e.attempt, e.state, e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
    e.vector_clock, e.read_set, e.agent, e.args_digest, e.identity_digest, e.identity_fields"""


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
