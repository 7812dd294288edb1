"""The commit of an effect that rests on what is decided by now, without the walk and the rest of the decision."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.sql.completion import LOGGED, SEALED, SEALS, TICKET
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement


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
        verdict=f"""
SELECT {ISOLATION}, minted.hash, minted.body, minted.minted_at, minted.attempt AS minted_attempt, minted.reconciled_over
FROM (SELECT 1) AS one LEFT JOIN minted ON true""",
    )
