"""Reads, and the bare compare-and-set on a domain."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.protocol.states import UNSETTLED
from effectfence_pg.sql.closures import CLOSURE, DEAD_MEMBERS, UNDECIDED_MEMBERS
from effectfence_pg.sql.statements import CERTIFIED, CURRENT, ISOLATION, SERIALIZABLE, statement, states

SHOWN_MEMBERS = 10_000
"""How far a status looks for what an effect waits for; it names only a few of them."""


@cache
def observe() -> TextClause:
    """Number and settledness of each domain, in one snapshot."""
    return statement(
        verdict=f"""
SELECT coalesce(json_agg(json_build_array(coalesce(d.seq, 0), NOT EXISTS (
         SELECT FROM effectfence.effects e
         WHERE e.namespace = d.namespace AND e.domain_key = d.domain_key AND e.seq > d.settled_seq
           AND e.state IN ({states(UNSETTLED)}))) ORDER BY asked.position), CAST('[]' AS json)) AS entries
FROM unnest(:keys) WITH ORDINALITY AS asked (domain_key, position)
LEFT JOIN LATERAL (
  SELECT * FROM effectfence.domains d
  WHERE d.namespace = :namespace AND d.domain_key = asked.domain_key OFFSET 0) AS d ON true"""
    )


@cache
def reserve() -> TextClause:
    """The bare compare-and-set: the next number of a domain, if the last one is still the expected one."""
    return statement(
        f"""
live AS MATERIALIZED (
  SELECT coalesce(max(d.seq), 0) AS seq FROM effectfence.domains d
  WHERE d.namespace = :namespace AND d.domain_key = :domain_key
),
reserved AS (
  INSERT INTO effectfence.domains AS d (namespace, domain_key, domain, seq, last_operation)
  SELECT :namespace, :domain_key, :domain, 1, :operation FROM live WHERE live.seq = :expected_seq AND {SERIALIZABLE}
  ON CONFLICT (namespace, domain_key) DO UPDATE SET seq = d.seq + 1, last_operation = excluded.last_operation
    WHERE d.seq = :expected_seq
  RETURNING seq
)""",
        verdict=f"""
SELECT {ISOLATION}, (SELECT seq FROM reserved) AS seq, live.seq AS live_seq,
  (SELECT d.seq FROM effectfence.domains d
   WHERE d.namespace = :namespace AND d.domain_key = :domain_key AND d.last_operation = :operation) AS own_seq
FROM live""",
    )


@cache
def status() -> TextClause:
    """The current attempt of an intent, its certificate, and what it waits for."""
    return statement(
        f"""
mine AS MATERIALIZED (
  SELECT e.*, e.lease_expires_at > clock_timestamp() AS lease_live, c.hash, c.body, c.minted_micros, c.reconciled_over
  FROM {CURRENT}{CERTIFIED}
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key
)""",
        CLOSURE,
        verdict=f"""
SELECT mine.*, {DEAD_MEMBERS} AS dead, {UNDECIDED_MEMBERS} AS undecided
FROM (SELECT 1) AS one LEFT JOIN mine ON true""",
    )
