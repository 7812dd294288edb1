"""The view that recomputes every certificate: one boolean for each thing that could have been changed behind our back."""

from typing import Final

from effectfence_pg.sql.importing import IMPORTED
from effectfence_pg.values.clocks import MAX_COUNT

MINTED_WITHIN_SECONDS: Final = 60
"""A certificate and the transition that minted it are written by one statement; this is how long one may take."""

CHECKS: Final = {
    "hash": "hash_holds",
    "columns": "columns_hold",
    "parent": "parent_holds",
    "edges": "edges_hold",
    "clock": "clock_holds",
    "closure": "closure_holds",
    "record": "record_holds",
}
"""What is recomputed, and the column that says whether it holds."""

_EDGES_OF: Final = """FROM effectfence.edges g
    JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt"""

CERTIFICATE_AUDIT: Final = f"""
CREATE VIEW effectfence.certificate_audit AS
SELECT c.namespace, c.hash, e.intent, c.attempt, c.minted_at,
  c.hash = encode(sha256(c.body), 'hex') AS hash_holds,
  coalesce(c.body = effectfence.certificate_body(e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
                                                 e.vector_clock, e.read_set, e.agent)
    AND c.parent IS NOT DISTINCT FROM e.parent AND e.state = 'committed'
    AND c.args_digest = e.args_digest AND c.identity_digest = e.identity_digest
    AND c.identity_fields IS NOT DISTINCT FROM e.identity_fields
    AND e.intent_key = sha256(convert_to(e.intent, 'UTF8'))
    AND e.domain_key = sha256(convert_to(e.domain, 'UTF8'))
    AND i.attempt = c.attempt AND i.intent = e.intent
    AND d.domain = e.domain AND d.seq >= e.seq, false) AS columns_hold,
  c.parent IS NULL OR EXISTS (
    SELECT FROM effectfence.certificates p
    JOIN effectfence.edges g ON g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
      AND g.observed_key = p.intent_key AND g.observed_attempt = p.attempt
    WHERE p.namespace = c.namespace AND p.hash = c.parent) AS parent_holds,
  coalesce(e.observing = EXISTS (
    SELECT FROM effectfence.edges g
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt), false)
    AND (NOT coalesce(e.observing, false) OR NOT EXISTS (
      -- An edge says how it came about: by an entry of the read set that covers it, or by the parent.
      SELECT {_EDGES_OF}
        AND (g.via = 'read_set' AND NOT EXISTS (
               SELECT FROM unnest(e.read_keys, e.read_seqs) AS entry (domain_key, seq)
               WHERE entry.domain_key = o.domain_key AND entry.seq >= o.seq)
          OR g.via = 'parent' AND NOT EXISTS (
               SELECT FROM effectfence.certificates p
               WHERE p.namespace = c.namespace AND p.hash = c.parent AND p.intent_key = o.intent_key))))
    AND (NOT coalesce(e.observing, false) OR NOT EXISTS (
      -- What was observed is on record.
      SELECT FROM effectfence.edges g
      WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
        AND NOT EXISTS (
          SELECT FROM effectfence.effects o
          WHERE o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt)))
    AND (cardinality(e.read_keys) = 0 OR coalesce((
      SELECT array_agg(sha256(convert_to(entry.value ->> 'domain', 'UTF8')) ORDER BY entry.position) = e.read_keys
         AND array_agg(CAST(entry.value ->> 'seq' AS bigint) ORDER BY entry.position) = e.read_seqs
      FROM json_array_elements(CAST(e.read_set AS json)) WITH ORDINALITY AS entry (value, position)), false))
    AND (cardinality(e.read_keys) = 0 OR NOT EXISTS (
      -- And the newest committed effect that an entry covers was observed; one that was released in between was not there.
      SELECT FROM unnest(e.read_keys, e.read_seqs) AS entry (domain_key, seq)
      CROSS JOIN LATERAL (
        SELECT o.intent_key, o.attempt FROM effectfence.effects o
        WHERE o.namespace = c.namespace AND o.domain_key = entry.domain_key AND o.seq <= entry.seq AND o.state = 'committed'
          AND o.intent_key <> c.intent_key
        ORDER BY o.seq DESC LIMIT 1) AS newest
      WHERE NOT EXISTS (
        SELECT FROM effectfence.edges g
        WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
          AND g.observed_key = newest.intent_key AND g.observed_attempt = newest.attempt)
        AND NOT EXISTS (
          SELECT FROM effectfence.transitions t
          WHERE t.namespace = c.namespace AND t.intent_key = newest.intent_key AND t.attempt = newest.attempt
            AND t.to_state = 'released'))) AS edges_hold,
  NOT EXISTS (
    SELECT {_EDGES_OF}
      AND EXISTS (
        SELECT FROM json_each_text(CAST(o.vector_clock AS json)) AS seen (agent, count)
        WHERE CAST(seen.count AS numeric) + CASE WHEN seen.agent = e.agent THEN 1 ELSE 0 END
          > coalesce((
            SELECT CASE WHEN CAST(own.count AS numeric) < {MAX_COUNT} THEN CAST(own.count AS numeric) ELSE 'infinity' END
            FROM json_each_text(CAST(e.vector_clock AS json)) AS own (agent, count)
            WHERE own.agent = seen.agent), -1))) AS clock_holds,
  c.reconciled_over IS NOT NULL OR NOT EXISTS (SELECT {_EDGES_OF} AND o.state <> 'committed') AS closure_holds,
  -- Null when the transitions of a settled intent were pruned.
  coalesce((
    SELECT t.to_state = 'committed' AND abs(extract(epoch FROM t.at - c.minted_at)) < {MINTED_WITHIN_SECONDS}
       AND (t.cause = '{IMPORTED}' OR (t.cause = 'reconciled_over') = (c.reconciled_over IS NOT NULL))
    FROM effectfence.transitions t
    WHERE t.namespace = c.namespace AND t.intent_key = c.intent_key AND t.attempt = c.attempt
    ORDER BY t.version DESC LIMIT 1), true) AS record_holds,
  c.reconciled_over
FROM effectfence.certificates c
LEFT JOIN effectfence.effects e
  ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
LEFT JOIN effectfence.intents i ON i.namespace = c.namespace AND i.intent_key = c.intent_key
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key
"""
