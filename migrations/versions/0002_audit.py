"""Add what auditors and operators read, three roles, row security by namespace, and retention.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("branches", "certificates", "domains", "edges", "effects", "intents", "transitions")


UPGRADE = (
    "DROP VIEW effectfence.unresolved",
    "DROP VIEW effectfence.certificate_audit",
    """CREATE OR REPLACE FUNCTION effectfence.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'transitions'
     AND current_setting('effectfence.pruning', true) = CAST(pg_current_xact_id_if_assigned() AS text) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% on effectfence.% is refused: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$""",
    """CREATE TRIGGER keep_committed AFTER UPDATE ON effectfence.effects
        FOR EACH ROW WHEN (OLD.state = 'committed') EXECUTE FUNCTION effectfence.refuse_change()""",
    """CREATE VIEW effectfence.observations AS
SELECT g.namespace, g.intent_key AS observer_key, g.attempt AS observer_attempt, g.observed_key, g.observed_attempt, g.via
FROM effectfence.edges g""",
    """CREATE VIEW effectfence.unresolved AS
-- What has a certificate is decided, and so is every attempt but the last: two indexes of keys leave the few rows to look at.
-- No index holds the state: a change of state would have to write it, and every step would conflict with its neighbours.
SELECT e.namespace, e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent AS holder, e.admitted_at,
       clock_timestamp() - e.admitted_at AS age, e.renewed_at AS last_renewal, e.lease_expires_at,
       coalesce(e.lease_expires_at > clock_timestamp(), false) AS lease_live, e.failure, e.reason, e.branch,
       e.result IS NOT NULL AS has_result, e.state IN ('in_flight', 'failed', 'aborted') AS unsettles_domain,
       (SELECT coalesce(array_agg(resting.intent ORDER BY resting.intent), '{}')
        FROM (SELECT o.intent
              FROM effectfence.edges g
              JOIN effectfence.effects o
                ON o.namespace = g.namespace AND o.intent_key = g.intent_key AND o.attempt = g.attempt
              WHERE g.namespace = e.namespace AND g.observed_key = e.intent_key AND g.observed_attempt = e.attempt
                AND o.state IN ('in_flight', 'executed', 'failed', 'aborted')
              ORDER BY o.intent LIMIT 16) AS resting) AS blocks, e.intent_key
FROM (
  SELECT i.namespace, i.intent_key FROM effectfence.intents i
  WHERE NOT EXISTS (
    SELECT FROM effectfence.certificates c WHERE c.namespace = i.namespace AND c.intent_key = i.intent_key)) AS undecided
CROSS JOIN LATERAL (
  SELECT * FROM effectfence.effects e
  WHERE e.namespace = undecided.namespace AND e.intent_key = undecided.intent_key
    AND e.state IN ('in_flight', 'executed', 'failed', 'aborted') OFFSET 0) AS e""",
    """CREATE VIEW effectfence.attempts AS
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
  ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt""",
    """CREATE VIEW effectfence.domain_history AS
SELECT e.namespace, e.domain, e.seq, e.intent, e.attempt, e.state, e.tool, e.agent, e.admitted_at, c.minted_at,
       c.hash AS certificate, d.seq AS live_seq, e.domain_key, e.intent_key
FROM effectfence.effects e
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key
LEFT JOIN effectfence.certificates c
  ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt""",
    """CREATE VIEW effectfence.certificate_ledger AS
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
  ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt""",
    """CREATE VIEW effectfence.certificate_audit AS
SELECT c.namespace, c.hash, e.intent, c.attempt, c.minted_at,
  c.hash = encode(sha256(c.body), 'hex') AS hash_holds,
  coalesce(c.body = effectfence.certificate_body(e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
                                                 e.vector_clock, e.read_set, e.agent)
    AND c.parent IS NOT DISTINCT FROM e.parent AND e.state = 'committed'
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
      SELECT FROM effectfence.edges g
    JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
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
    SELECT FROM effectfence.edges g
    JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
      AND EXISTS (
        SELECT FROM json_each_text(CAST(o.vector_clock AS json)) AS seen (agent, count)
        WHERE CAST(seen.count AS numeric) + CASE WHEN seen.agent = e.agent THEN 1 ELSE 0 END
          > coalesce((
            SELECT CASE WHEN CAST(own.count AS numeric) < 18446744073709551615 THEN CAST(own.count AS numeric) ELSE 'infinity' END
            FROM json_each_text(CAST(e.vector_clock AS json)) AS own (agent, count)
            WHERE own.agent = seen.agent), -1))) AS clock_holds,
  c.reconciled_over IS NOT NULL OR NOT EXISTS (SELECT FROM effectfence.edges g
    JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt AND o.state <> 'committed') AS closure_holds,
  -- Null when the transitions of a settled intent were pruned.
  coalesce((
    SELECT t.to_state = 'committed' AND abs(extract(epoch FROM t.at - c.minted_at)) < 60
       AND (t.cause = 'imported' OR (t.cause = 'reconciled_over') = (c.reconciled_over IS NOT NULL))
    FROM effectfence.transitions t
    WHERE t.namespace = c.namespace AND t.intent_key = c.intent_key AND t.attempt = c.attempt
    ORDER BY t.version DESC LIMIT 1), true) AS record_holds,
  c.reconciled_over
FROM effectfence.certificates c
LEFT JOIN effectfence.effects e
  ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
LEFT JOIN effectfence.intents i ON i.namespace = c.namespace AND i.intent_key = c.intent_key
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key""",
    """CREATE VIEW effectfence.missing_certificates AS
SELECT e.namespace, e.intent, e.attempt, e.domain, e.seq, e.tool, e.agent
FROM effectfence.effects e
WHERE e.state = 'committed' AND NOT EXISTS (
  SELECT FROM effectfence.certificates c
  WHERE c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt)""",
    """CREATE FUNCTION effectfence.lineage(namespace text, hash text) RETURNS TABLE (depth integer, intent text, attempt integer, state text, certificate text, domain text, seq bigint,
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
  SELECT g.observed_key, g.observed_attempt, s.intent_key, s.attempt, g.via, s.walked + interval '1 day -24 hours'
  FROM steps s CROSS JOIN LATERAL (
    SELECT * FROM effectfence.observations g
    WHERE g.namespace = $1 AND g.observer_key = s.intent_key AND g.observer_attempt = s.attempt OFFSET 0) AS g
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
  WHERE m.depth <= 32
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
$$""",
    """CREATE FUNCTION effectfence.dependents(namespace text, hash text) RETURNS TABLE (depth integer, intent text, attempt integer, state text, certificate text, domain text, seq bigint,
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
  SELECT g.observer_key, g.observer_attempt, s.intent_key, s.attempt, g.via, s.walked + interval '1 day -24 hours'
  FROM steps s CROSS JOIN LATERAL (
    SELECT * FROM effectfence.observations g
    WHERE g.namespace = $1 AND g.observed_key = s.intent_key AND g.observed_attempt = s.attempt OFFSET 0) AS g
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
  WHERE m.depth <= 32
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
$$""",
    """CREATE FUNCTION effectfence.grant_roles() RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  given text[] := '{}';
BEGIN
  BEGIN
    IF to_regrole('effectfence_app') IS NULL THEN
      CREATE ROLE effectfence_app NOLOGIN;
    END IF;
    GRANT USAGE ON SCHEMA effectfence TO effectfence_app;
    GRANT SELECT, INSERT ON effectfence.branches, effectfence.certificates, effectfence.domains, effectfence.edges, effectfence.effects, effectfence.intents, effectfence.transitions TO effectfence_app;
    GRANT UPDATE (state, version, decided_at, actor, reason) ON effectfence.branches TO effectfence_app;
    GRANT UPDATE (seq, settled_seq, last_operation) ON effectfence.domains TO effectfence_app;
    GRANT UPDATE (state, version, lease_expires_at, renewed_at, executed_at, commit_asked, result, failure, reason, last_operation, vector_clock, read_set, read_keys, read_seqs, observing) ON effectfence.effects TO effectfence_app;
    GRANT UPDATE (attempt, version) ON effectfence.intents TO effectfence_app;
    GRANT EXECUTE ON FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text), effectfence.on_record(text, bytea), effectfence.settled_before(text, bytea, bigint) TO effectfence_app;
    IF to_regclass('effectfence.alembic_version') IS NOT NULL THEN
      GRANT SELECT ON effectfence.alembic_version TO effectfence_app;
    END IF;
    given := given || CAST('effectfence_app' AS text);
  EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation OR undefined_object THEN
      RAISE NOTICE 'effectfence: effectfence_app was not granted (%). As an administrator: CREATE ROLE effectfence_app NOLOGIN; then, as the '
        'owner of the schema: SELECT effectfence.grant_roles()', SQLERRM;
  END;
  BEGIN
    IF to_regrole('effectfence_operator') IS NULL THEN
      CREATE ROLE effectfence_operator NOLOGIN;
    END IF;
    GRANT USAGE ON SCHEMA effectfence TO effectfence_operator;
    GRANT SELECT, INSERT ON effectfence.branches, effectfence.certificates, effectfence.domains, effectfence.edges, effectfence.effects, effectfence.intents, effectfence.transitions TO effectfence_operator;
    GRANT UPDATE (state, version, decided_at, actor, reason) ON effectfence.branches TO effectfence_operator;
    GRANT UPDATE (seq, settled_seq, last_operation) ON effectfence.domains TO effectfence_operator;
    GRANT UPDATE (state, version, lease_expires_at, renewed_at, executed_at, commit_asked, result, failure, reason, last_operation, vector_clock, read_set, read_keys, read_seqs, observing) ON effectfence.effects TO effectfence_operator;
    GRANT UPDATE (attempt, version) ON effectfence.intents TO effectfence_operator;
    GRANT EXECUTE ON FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text), effectfence.on_record(text, bytea), effectfence.settled_before(text, bytea, bigint) TO effectfence_operator;
    GRANT SELECT ON effectfence.observations, effectfence.unresolved, effectfence.attempts, effectfence.domain_history, effectfence.certificate_ledger, effectfence.certificate_audit, effectfence.missing_certificates TO effectfence_operator;
    GRANT EXECUTE ON FUNCTION effectfence.lineage(text, text), effectfence.dependents(text, text) TO effectfence_operator;
    IF to_regclass('effectfence.alembic_version') IS NOT NULL THEN
      GRANT SELECT ON effectfence.alembic_version TO effectfence_operator;
    END IF;
    given := given || CAST('effectfence_operator' AS text);
  EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation OR undefined_object THEN
      RAISE NOTICE 'effectfence: effectfence_operator was not granted (%). As an administrator: CREATE ROLE effectfence_operator NOLOGIN; then, as the '
        'owner of the schema: SELECT effectfence.grant_roles()', SQLERRM;
  END;
  BEGIN
    IF to_regrole('effectfence_auditor') IS NULL THEN
      CREATE ROLE effectfence_auditor NOLOGIN;
    END IF;
    GRANT USAGE ON SCHEMA effectfence TO effectfence_auditor;
    GRANT EXECUTE ON FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text) TO effectfence_auditor;
    GRANT SELECT ON effectfence.observations, effectfence.unresolved, effectfence.attempts, effectfence.domain_history, effectfence.certificate_ledger, effectfence.certificate_audit, effectfence.missing_certificates TO effectfence_auditor;
    GRANT EXECUTE ON FUNCTION effectfence.lineage(text, text), effectfence.dependents(text, text) TO effectfence_auditor;
    IF to_regclass('effectfence.alembic_version') IS NOT NULL THEN
      GRANT SELECT ON effectfence.alembic_version TO effectfence_auditor;
    END IF;
    given := given || CAST('effectfence_auditor' AS text);
  EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation OR undefined_object THEN
      RAISE NOTICE 'effectfence: effectfence_auditor was not granted (%). As an administrator: CREATE ROLE effectfence_auditor NOLOGIN; then, as the '
        'owner of the schema: SELECT effectfence.grant_roles()', SQLERRM;
  END;
  IF 'effectfence_operator' = ANY (given) THEN
    DROP POLICY IF EXISTS operators ON effectfence.branches; DROP POLICY IF EXISTS operators ON effectfence.certificates; DROP POLICY IF EXISTS operators ON effectfence.domains; DROP POLICY IF EXISTS operators ON effectfence.edges; DROP POLICY IF EXISTS operators ON effectfence.effects; DROP POLICY IF EXISTS operators ON effectfence.intents; DROP POLICY IF EXISTS operators ON effectfence.transitions;
    CREATE POLICY operators ON effectfence.branches TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.certificates TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.domains TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.edges TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.effects TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.intents TO effectfence_operator USING (true); CREATE POLICY operators ON effectfence.transitions TO effectfence_operator USING (true);
  END IF;
  RETURN given;
END
$$""",
    """CREATE FUNCTION effectfence.isolate_namespaces(enabled boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['branches', 'certificates', 'domains', 'edges', 'effects', 'intents', 'transitions'] LOOP
    EXECUTE format('ALTER TABLE effectfence.%I %s ROW LEVEL SECURITY', name,
                   CASE WHEN enabled THEN 'ENABLE' ELSE 'DISABLE' END);
  END LOOP;
END
$$""",
    """CREATE FUNCTION effectfence.prune(older_than interval, batch integer DEFAULT 1000)
RETURNS TABLE (intents bigint, transitions bigint, results bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
  IF older_than IS NULL OR older_than < interval '0' OR batch IS NULL OR batch < 1 THEN
    RAISE EXCEPTION 'prune: older_than must be an interval from 0 up and batch a number from 1 up'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The trigger that keeps transitions admits a removal in this transaction only.
  PERFORM set_config('effectfence.pruning', CAST(pg_current_xact_id() AS text), true);
  RETURN QUERY
  WITH settled AS MATERIALIZED (
    SELECT i.namespace, i.intent_key
    -- What was pruned before is gone from here: every batch begins with what is left.
    FROM effectfence.transitions first
    JOIN effectfence.intents i ON i.namespace = first.namespace AND i.intent_key = first.intent_key
    WHERE first.attempt = 1 AND first.version = 1 AND first.at < clock_timestamp() - older_than
      AND NOT EXISTS (
        SELECT FROM effectfence.effects e
        WHERE e.namespace = i.namespace AND e.intent_key = i.intent_key
          AND e.state NOT IN ('committed', 'released', 'superseded'))
      -- Late evidence is kept, and with it all that led to it; so is what an operator decided over a dead closure.
      AND NOT EXISTS (
        SELECT FROM effectfence.transitions t
        WHERE t.namespace = i.namespace AND t.intent_key = i.intent_key
          AND (t.cause IN ('late_evidence', 'reconciled_over') OR t.at >= clock_timestamp() - older_than))
    LIMIT batch
    FOR NO KEY UPDATE OF i SKIP LOCKED
  ),
  emptied AS (
    UPDATE effectfence.effects e SET result = NULL, version = e.version + 1
    FROM settled s
    WHERE e.namespace = s.namespace AND e.intent_key = s.intent_key
      AND e.state IN ('released', 'superseded') AND e.result IS NOT NULL
    RETURNING 1
  ),
  removed AS (
    DELETE FROM effectfence.transitions t USING settled s
    WHERE t.namespace = s.namespace AND t.intent_key = s.intent_key
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM settled), (SELECT count(*) FROM removed), (SELECT count(*) FROM emptied);
  PERFORM set_config('effectfence.pruning', '', true);
END
$$""",
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
    """COMMENT ON FUNCTION effectfence.refuse_change() IS
    'Keeps certificates, edges and transitions append-only, and every row of the other tables; prune() alone is let through'""",
    """COMMENT ON FUNCTION effectfence.grant_roles() IS
    'Creates effectfence_app, effectfence_operator and effectfence_auditor where permitted, and grants; again at any time'""",
    """COMMENT ON FUNCTION effectfence.isolate_namespaces(boolean) IS
    'Switches row security by namespace on or off; on, a session sees the namespace in effectfence.namespace only'""",
    """COMMENT ON FUNCTION effectfence.prune(interval, integer) IS
    'Retention, one batch: transitions of settled intents, and results without a certificate; never late evidence'""",
    """CREATE POLICY tenants ON effectfence.branches
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.certificates
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.domains
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.edges
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.effects
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.intents
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """CREATE POLICY tenants ON effectfence.transitions
        USING (namespace = (SELECT current_setting('effectfence.namespace', true)))""",
    """REVOKE ALL ON effectfence.observations, effectfence.unresolved, effectfence.attempts, effectfence.domain_history, effectfence.certificate_ledger, effectfence.certificate_audit, effectfence.missing_certificates FROM PUBLIC""",
    """REVOKE ALL ON FUNCTION effectfence.lineage(text, text), effectfence.dependents(text, text) FROM PUBLIC""",
    """REVOKE ALL ON FUNCTION effectfence.grant_roles(), effectfence.isolate_namespaces(boolean),
    effectfence.prune(interval, integer) FROM PUBLIC""",
    """GRANT DELETE ON effectfence.transitions TO CURRENT_USER""",
    """SELECT effectfence.grant_roles()""",
)

LEAVE_ROLES_IN_USE = """
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['effectfence_app', 'effectfence_operator', 'effectfence_auditor'] LOOP
    CONTINUE WHEN to_regrole(name) IS NULL;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA effectfence FROM %I', name);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA effectfence FROM %I', name);
    EXECUTE format('REVOKE ALL ON SCHEMA effectfence FROM %I', name);
    -- Roles are of the whole cluster: one that somebody is a member of, or that another database grants to, stays.
    CONTINUE WHEN EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = to_regrole(name) OR m.member = to_regrole(name));
    BEGIN
      EXECUTE format('DROP ROLE %I', name);
    EXCEPTION
      WHEN dependent_objects_still_exist OR insufficient_privilege OR undefined_object THEN
        RAISE NOTICE 'effectfence: role % stays: %', name, SQLERRM;
    END;
  END LOOP;
END
$$
"""

BEFORE = (
    """CREATE OR REPLACE FUNCTION effectfence.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on effectfence.% is refused: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$""",
    """CREATE VIEW effectfence.unresolved AS
SELECT e.namespace, e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent, e.admitted_at, e.renewed_at,
       e.lease_expires_at, clock_timestamp() - e.admitted_at AS age, e.failure, e.reason, e.result IS NOT NULL AS has_result
FROM effectfence.effects e
WHERE e.state IN ('in_flight', 'executed', 'failed', 'aborted')""",
    """CREATE VIEW effectfence.certificate_audit AS
SELECT c.namespace, c.hash, e.intent, c.attempt,
  c.hash = encode(sha256(c.body), 'hex') AS hash_holds,
  coalesce(c.body = effectfence.certificate_body(e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
                                                 e.vector_clock, e.read_set, e.agent)
    AND c.parent IS NOT DISTINCT FROM e.parent AND e.state = 'committed'
    AND e.intent_key = sha256(convert_to(e.intent, 'UTF8'))
    AND e.domain_key = sha256(convert_to(e.domain, 'UTF8'))
    AND i.attempt = c.attempt AND i.intent = e.intent
    AND d.domain = e.domain AND d.seq >= e.seq, false) AS columns_hold,
  c.parent IS NULL OR EXISTS (
    SELECT FROM effectfence.certificates p WHERE p.namespace = c.namespace AND p.hash = c.parent) AS parent_holds,
  coalesce(e.observing = EXISTS (
    SELECT FROM effectfence.edges g
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt), false)
    AND NOT EXISTS (
      SELECT FROM effectfence.edges g
      JOIN effectfence.effects o
        ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
      WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
        AND g.via = 'read_set' AND o.domain_key <> ALL (e.read_keys)) AS edges_hold,
  NOT EXISTS (
    SELECT FROM effectfence.edges g
    JOIN effectfence.effects o
      ON o.namespace = g.namespace AND o.intent_key = g.observed_key AND o.attempt = g.observed_attempt
    CROSS JOIN LATERAL json_each_text(CAST(o.vector_clock AS json)) AS seen (agent, count)
    WHERE g.namespace = c.namespace AND g.intent_key = c.intent_key AND g.attempt = c.attempt
      AND CAST(seen.count AS numeric) > coalesce((
        SELECT CAST(own.count AS numeric) FROM json_each_text(CAST(e.vector_clock AS json)) AS own (agent, count)
        WHERE own.agent = seen.agent), -1)) AS clock_holds,
  c.reconciled_over
FROM effectfence.certificates c
LEFT JOIN effectfence.effects e
  ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
LEFT JOIN effectfence.intents i ON i.namespace = c.namespace AND i.intent_key = c.intent_key
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key""",
    """COMMENT ON FUNCTION effectfence.refuse_change() IS
    'Keeps certificates, edges and transitions append-only, and every row of the other tables'""",
    """COMMENT ON VIEW effectfence.unresolved IS 'Every effect that was dispatched and is not decided'""",
    """COMMENT ON VIEW effectfence.certificate_audit IS
    'Every certificate, recomputed: hash, columns, parent, edges against the read set, clocks going up along edges'""",
    "REVOKE ALL ON effectfence.unresolved, effectfence.certificate_audit FROM PUBLIC",
    "REVOKE DELETE ON effectfence.transitions FROM CURRENT_USER",
)


def upgrade() -> None:
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    for function in (
        "prune(interval, integer)",
        "isolate_namespaces(boolean)",
        "grant_roles()",
        "dependents(text, text)",
        "lineage(text, text)",
    ):
        op.execute(f"DROP FUNCTION effectfence.{function}")
    for view in (
        "missing_certificates",
        "certificate_audit",
        "certificate_ledger",
        "domain_history",
        "attempts",
        "unresolved",
        "observations",
    ):
        op.execute(f"DROP VIEW effectfence.{view}")
    op.execute("DROP TRIGGER keep_committed ON effectfence.effects")
    for table in TABLES:
        op.execute(f"ALTER TABLE effectfence.{table} DISABLE ROW LEVEL SECURITY")
        for policy in ("tenants", "operators"):
            op.execute(f"DROP POLICY IF EXISTS {policy} ON effectfence.{table}")
    op.execute(LEAVE_ROLES_IN_USE)
    for statement in BEFORE:
        op.execute(statement)
