"""Views and functions for people who read the record: auditors and operators. The migrations carry their own frozen copies.

Views run with the rights of their owner, and the functions read views only, so that an auditor needs no right on a table.
Nothing here is called by a verb.
"""

from typing import Final

from effectfence_pg.sql.closures import BLOCKERS_SHOWN

PATHS_SHOWN: Final = 32
"""A way is written out up to this many steps; a longer one is followed from row to row by `through`."""

_WALKED: Final = """(depth integer, intent text, attempt integer, state text, certificate text, domain text, seq bigint,
  tool text, agent text, via text, through text, through_attempt integer, path text[])
LANGUAGE sql STABLE ROWS 100
-- No option that would keep it from being merged into the query that calls it: what is not asked for is not looked up.
AS $$
WITH RECURSIVE steps AS (
  -- Each edge once. A day less 24 hours equals nothing, so that UNION meets an edge again whatever the depth: the number of
  -- days is the depth at which it was met first, and the walk is linear in the edges, through diamonds and shortcuts too.
  SELECT c.intent_key, c.attempt, CAST(NULL AS bytea) AS from_key, CAST(NULL AS integer) AS from_attempt,
         CAST(NULL AS text) AS via, interval '0' AS walked
  FROM effectfence.certificate_ledger c WHERE c.namespace = $1 AND c.hash = $2
  UNION
  SELECT g.{ahead}_key, g.{ahead}_attempt, s.intent_key, s.attempt, g.via, s.walked + interval '1 day -24 hours'
  FROM steps s CROSS JOIN LATERAL (
    SELECT * FROM effectfence.observations g
    WHERE g.namespace = $1 AND g.{here}_key = s.intent_key AND g.{here}_attempt = s.attempt OFFSET 0) AS g
),
met AS MATERIALIZED (
  SELECT DISTINCT ON (s.intent_key, s.attempt) s.intent_key, s.attempt, s.from_key, s.from_attempt, s.via,
         CAST(date_part('day', s.walked) AS integer) AS depth
  FROM steps s ORDER BY s.intent_key, s.attempt, CAST(date_part('day', s.walked) AS integer), s.from_key, s.from_attempt
),
near AS MATERIALIZED (
  SELECT m.intent_key, m.attempt, m.from_key, m.from_attempt, m.depth, h.intent
  FROM met m CROSS JOIN LATERAL (
    SELECT h.intent FROM effectfence.domain_history h
    WHERE h.namespace = $1 AND h.intent_key = m.intent_key AND h.attempt = m.attempt OFFSET 0) AS h
  WHERE m.depth <= {shown}
),
ways AS (
  SELECT n.intent_key, n.attempt, n.depth, ARRAY[n.intent] AS path FROM near n WHERE n.depth = 0
  UNION ALL
  SELECT n.intent_key, n.attempt, n.depth, w.path || n.intent
  FROM ways w JOIN near n ON n.from_key = w.intent_key AND n.from_attempt = w.attempt AND n.depth = w.depth + 1
)
SELECT m.depth, h.intent, m.attempt, CAST(h.state AS text), h.certificate, h.domain, h.seq, CAST(h.tool AS text),
       CAST(h.agent AS text), m.via, o.intent,
       m.from_attempt, w.path
FROM met m
LEFT JOIN effectfence.domain_history h ON h.namespace = $1 AND h.intent_key = m.intent_key AND h.attempt = m.attempt
LEFT JOIN effectfence.domain_history o ON o.namespace = $1 AND o.intent_key = m.from_key AND o.attempt = m.from_attempt
LEFT JOIN ways w ON w.intent_key = m.intent_key AND w.attempt = m.attempt
$$"""


def _walk(*, ahead: str, here: str) -> str:
    text = _WALKED
    for name, value in {"ahead": ahead, "here": here, "shown": str(PATHS_SHOWN)}.items():
        text = text.replace(f"{{{name}}}", value)
    return text


LINEAGE: Final = "CREATE FUNCTION effectfence.lineage(namespace text, hash text) RETURNS TABLE " + _walk(
    ahead="observed", here="observer"
)
DEPENDENTS: Final = "CREATE FUNCTION effectfence.dependents(namespace text, hash text) RETURNS TABLE " + _walk(
    ahead="observer", here="observed"
)

OBSERVATIONS: Final = """
CREATE VIEW effectfence.observations AS
SELECT g.namespace, g.intent_key AS observer_key, g.attempt AS observer_attempt, g.observed_key, g.observed_attempt, g.via
FROM effectfence.edges g
"""

UNRESOLVED: Final = f"""
CREATE VIEW effectfence.unresolved AS
-- What has a certificate is decided, and so is every attempt but the last: two indexes of keys leave the few rows to look at.
-- No index holds the state: a change of state would have to write it, and every step would conflict with its neighbours.
SELECT e.namespace, e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent AS holder, e.admitted_at,
       clock_timestamp() - e.admitted_at AS age, e.renewed_at AS last_renewal, e.lease_expires_at,
       coalesce(e.lease_expires_at > clock_timestamp(), false) AS lease_live, e.failure, e.reason, e.branch,
       e.result IS NOT NULL AS has_result, e.state IN ('in_flight', 'failed', 'aborted') AS unsettles_domain,
       (SELECT coalesce(array_agg(resting.intent ORDER BY resting.intent), '{{}}')
        FROM (SELECT o.intent
              FROM effectfence.edges g
              JOIN effectfence.effects o
                ON o.namespace = g.namespace AND o.intent_key = g.intent_key AND o.attempt = g.attempt
              WHERE g.namespace = e.namespace AND g.observed_key = e.intent_key AND g.observed_attempt = e.attempt
                AND o.state IN ('in_flight', 'executed', 'failed', 'aborted')
              ORDER BY o.intent LIMIT {BLOCKERS_SHOWN}) AS resting) AS blocks, e.intent_key
FROM (
  SELECT i.namespace, i.intent_key FROM effectfence.intents i
  WHERE NOT EXISTS (
    SELECT FROM effectfence.certificates c WHERE c.namespace = i.namespace AND c.intent_key = i.intent_key)) AS undecided
CROSS JOIN LATERAL (
  SELECT * FROM effectfence.effects e
  WHERE e.namespace = undecided.namespace AND e.intent_key = undecided.intent_key
    AND e.state IN ('in_flight', 'executed', 'failed', 'aborted') OFFSET 0) AS e
"""

ATTEMPTS: Final = """
CREATE VIEW effectfence.attempts AS
SELECT e.namespace, e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent, e.admitted_at AS started_at,
       record.completed_at, record.last_change_at, coalesce(record.causes, '{}') AS causes,
       coalesce(record.actors, '{}') AS actors, coalesce(record.late_evidence, 0) AS late_evidence, e.reason,
       e.result IS NOT NULL AS has_result, c.hash AS certificate, e.intent_key
FROM effectfence.effects e
LEFT JOIN LATERAL (
  SELECT min(t.at) FILTER (WHERE t.from_state = 'in_flight' AND t.to_state <> 'in_flight') AS completed_at,
         max(t.at) AS last_change_at, array_agg(t.cause ORDER BY t.version) AS causes,
         array_agg(t.actor ORDER BY t.version) AS actors, count(*) FILTER (WHERE t.cause = 'late_evidence') AS late_evidence
  FROM effectfence.transitions t
  WHERE t.namespace = e.namespace AND t.intent_key = e.intent_key AND t.attempt = e.attempt) AS record ON true
LEFT JOIN effectfence.certificates c
  ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt
"""

DOMAIN_HISTORY: Final = """
CREATE VIEW effectfence.domain_history AS
SELECT e.namespace, e.domain, e.seq, e.intent, e.attempt, e.state, e.tool, e.agent, e.admitted_at, c.minted_at,
       c.hash AS certificate, d.seq AS live_seq, e.domain_key, e.intent_key
FROM effectfence.effects e
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key
LEFT JOIN effectfence.certificates c
  ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt
"""

LEDGER: Final = """
CREATE VIEW effectfence.certificate_ledger AS
SELECT c.namespace, c.hash, c.parent, c.body, c.minted_at, c.attempt, c.reconciled_over, e.intent, e.parent AS effect_parent,
       e.domain, e.seq, e.tool, e.args, e.result, e.vector_clock, e.read_set, e.agent, e.identity_fields,
       (SELECT coalesce(json_agg(json_build_array(o.intent, o.attempt, g.via) ORDER BY o.intent COLLATE "C"), '[]')
        FROM effectfence.edges g
        JOIN effectfence.effects o
          ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
        WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt) AS observed, c.intent_key,
       e.args_digest, e.identity_digest
FROM effectfence.certificates c
LEFT JOIN effectfence.effects e
  ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
"""

MISSING: Final = """
CREATE VIEW effectfence.missing_certificates AS
SELECT e.namespace, e.intent, e.attempt, e.domain, e.seq, e.tool, e.agent
FROM effectfence.effects e
WHERE e.state = 'committed' AND NOT EXISTS (
  SELECT FROM effectfence.certificates c
  WHERE c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt)
"""

VIEWS: Final = (
    "observations",
    "unresolved",
    "attempts",
    "domain_history",
    "certificate_ledger",
    "certificate_audit",
    "missing_certificates",
)
WALKS: Final = ("lineage", "dependents")

COMMENTS: Final = (
    """COMMENT ON FUNCTION effectfence.lineage(text, text) IS
    'Everything a certificate rests on, itself first: depth, the step it was met by, and the way to it'""",
    """COMMENT ON FUNCTION effectfence.dependents(text, text) IS
    'Everything that rests on a certificate, itself first; what is undecided or rolled back included'""",
    """COMMENT ON VIEW effectfence.unresolved IS
    'Every effect that was dispatched and is not decided: its age, holder, last renewal, and what it blocks'""",
    """COMMENT ON VIEW effectfence.observations IS
    'Who observed whom, by key: sha256 of the intent, and the attempt'""",
    """COMMENT ON VIEW effectfence.attempts IS
    'Every attempt: start, completion, causes in order, late evidence; completed_at is null while nobody has reported'""",
    """COMMENT ON VIEW effectfence.domain_history IS
    'Every number that an effect took in a domain; a gap is a number that an exit, a reconcile or a reservation took'""",
    """COMMENT ON VIEW effectfence.certificate_ledger IS
    'Every certificate with the columns it was made from: what a recomputation outside the database needs'""",
    """COMMENT ON VIEW effectfence.certificate_audit IS
    'Every certificate, recomputed: hash, columns, parent, edges against the read set, clocks, closure and record'""",
    """COMMENT ON VIEW effectfence.missing_certificates IS 'Committed effects without a certificate: there are none'""",
)
