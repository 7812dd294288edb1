"""Keep an action's digests with its certificate, and give instants as whole microseconds.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ON_RECORD = """CREATE FUNCTION effectfence.on_record(namespace text, intent_key bytea) RETURNS TABLE (
  attempt integer, state effectfence.effect_state, token uuid, seq bigint, agent effectfence.label, domain text,
  tool effectfence.label, args_digest bytea,
  identity_digest bytea, identity_fields text[], vector_clock text, observing boolean, admitted_at timestamptz,
  {lease_type}, on_lease_expiry text, failure text, reason text, has_result boolean, lease_live boolean,
  lease_left_seconds numeric, hash text, body bytea, {minted_type}, reconciled_over jsonb)
LANGUAGE plpgsql STABLE ROWS 1 AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT e.attempt, e.state, e.token, e.seq, e.agent, e.domain, e.tool, e.args_digest, e.identity_digest, e.identity_fields,
         e.vector_clock, e.observing, e.admitted_at, {lease}e.result IS NOT NULL AS has_result, e.lease_expires_at > clock_timestamp() AS lease_live,
         greatest(extract(epoch FROM e.lease_expires_at - clock_timestamp()), 0) AS lease_left_seconds,
         c.hash, c.body, {shown}, c.reconciled_over
  FROM effectfence.intents i
  CROSS JOIN LATERAL (
    -- LIMIT 1, here and wherever one row is joined by its key: where many namespaces use the same few names, such a join is
    -- taken for thousands of rows, and a statement that seems to have millions is compiled, for seconds.
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt LIMIT 1) AS e
  LEFT JOIN LATERAL (
    SELECT c.hash, c.body, {minted}, c.reconciled_over FROM effectfence.certificates c
    WHERE c.namespace = i.namespace AND c.intent_key = i.intent_key LIMIT 1) AS c ON true
  WHERE i.namespace = $1 AND i.intent_key = $2;
END
$$"""

_CERTIFICATE_AUDIT = """CREATE OR REPLACE VIEW effectfence.certificate_audit AS
SELECT c.namespace, c.hash, e.intent, c.attempt, c.minted_at,
  c.hash = encode(sha256(c.body), 'hex') AS hash_holds,
  coalesce(c.body = effectfence.certificate_body(e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
                                                 e.vector_clock, e.read_set, e.agent)
    AND c.parent IS NOT DISTINCT FROM e.parent AND e.state = 'committed'{digests}
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
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key"""

_MICROS = "CAST(extract(epoch FROM {}) * 1000000 AS bigint) AS {}"

UPGRADE = (
    # Both at once and in the order of a commit: taken one by one, they could be what another one waits for.
    "LOCK TABLE effectfence.effects, effectfence.certificates IN ACCESS EXCLUSIVE MODE",
    """ALTER TABLE effectfence.certificates
    ADD COLUMN args_digest bytea, ADD COLUMN identity_digest bytea, ADD COLUMN identity_fields text[]""",
    "COMMENT ON COLUMN effectfence.certificates.args_digest IS 'The effect''s, so that a replay reads this row only'",
    "COMMENT ON COLUMN effectfence.certificates.identity_digest IS 'The effect''s, likewise'",
    "COMMENT ON COLUMN effectfence.certificates.identity_fields IS 'The effect''s, likewise'",
    # Certificates are append-only; this fills in what their effects say, and nothing else.
    "ALTER TABLE effectfence.certificates DISABLE TRIGGER keep_rows",
    # It has to see them all, also where row security is forced on their owner.
    "CREATE POLICY filling ON effectfence.certificates USING (true)",
    "CREATE POLICY filling ON effectfence.effects USING (true)",
    """UPDATE effectfence.certificates AS c
    SET args_digest = e.args_digest, identity_digest = e.identity_digest, identity_fields = e.identity_fields
    FROM effectfence.effects AS e
    WHERE e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt""",
    """DO $$
DECLARE
  lost text;
BEGIN
  SELECT string_agg(left(c.hash, 12) || ' of ' || c.namespace, ', ') INTO lost
  FROM (SELECT hash, namespace FROM effectfence.certificates WHERE args_digest IS NULL ORDER BY hash LIMIT 3) AS c;
  IF lost IS NOT NULL THEN
    RAISE EXCEPTION 'certificates without their effects: %; restore these first, nothing was changed', lost
      USING ERRCODE = 'foreign_key_violation';
  END IF;
END
$$""",
    "DROP POLICY filling ON effectfence.certificates",
    "DROP POLICY filling ON effectfence.effects",
    "ALTER TABLE effectfence.certificates ENABLE ALWAYS TRIGGER keep_rows",
    """ALTER TABLE effectfence.certificates
    ALTER COLUMN args_digest SET NOT NULL, ALTER COLUMN identity_digest SET NOT NULL""",
    "DROP FUNCTION effectfence.on_record(text, bytea)",
    _ON_RECORD.format(
        lease_type="lease_micros bigint",
        minted_type="minted_micros bigint",
        lease=_MICROS.format("e.lease_expires_at", "lease_micros")
        + ", e.on_lease_expiry,\n         e.failure, e.reason, ",
        minted=_MICROS.format("c.minted_at", "minted_micros"),
        shown="c.minted_micros",
    ),
    """COMMENT ON FUNCTION effectfence.on_record(text, bytea) IS
    'What the current attempt of an intent says, with its certificate'""",
    "REVOKE ALL ON FUNCTION effectfence.on_record(text, bytea) FROM PUBLIC",
    _CERTIFICATE_AUDIT.format(
        digests="""
    AND c.args_digest = e.args_digest AND c.identity_digest = e.identity_digest
    AND c.identity_fields IS NOT DISTINCT FROM e.identity_fields"""
    ),
    "SELECT effectfence.grant_roles()",
)

DOWNGRADE = (
    _CERTIFICATE_AUDIT.format(digests=""),
    "DROP FUNCTION effectfence.on_record(text, bytea)",
    _ON_RECORD.format(
        lease_type="lease_expires_at timestamptz",
        minted_type="minted_at timestamptz",
        lease="e.lease_expires_at, e.on_lease_expiry, e.failure, e.reason,\n         ",
        minted="c.minted_at",
        shown="c.minted_at",
    ),
    """COMMENT ON FUNCTION effectfence.on_record(text, bytea) IS
    'What the current attempt of an intent says, with its certificate'""",
    "REVOKE ALL ON FUNCTION effectfence.on_record(text, bytea) FROM PUBLIC",
    "SELECT effectfence.grant_roles()",
    """ALTER TABLE effectfence.certificates
    DROP COLUMN args_digest, DROP COLUMN identity_digest, DROP COLUMN identity_fields""",
)


def upgrade() -> None:
    for statement in UPGRADE:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWNGRADE:
        op.execute(statement)
