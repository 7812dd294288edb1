"""What metadata cannot say: functions, triggers, views and grants. The migrations carry their own frozen copies.

A test builds one database from these and one from the migrations and compares the catalogues.
"""

from typing import Final

from effectfence_pg.sql.admission import PRIOR
from effectfence_pg.sql.gates import SETTLED_BEFORE

CERTIFICATE_BODY: Final = """
CREATE FUNCTION effectfence.certificate_body(
  intent text, parent text, domain text, seq bigint, tool text, args text, result text, vector_clock text, read_set text,
  agent text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN convert_to(
  '{"intent":' || CAST(to_json(intent) AS text)
  || ',"parent":' || coalesce(CAST(to_json(parent) AS text), 'null')
  || ',"domain":' || CAST(to_json(domain) AS text)
  || ',"seq":' || seq
  || ',"tool":' || CAST(to_json(tool) AS text)
  || ',"args":' || args
  || ',"result":' || result
  || ',"vector_clock":' || vector_clock
  || ',"read_set":' || read_set
  || ',"agent":' || CAST(to_json(agent) AS text) || '}', 'UTF8')
"""
"""The exact bytes of a certificate; args, result, vector_clock and read_set are canonical JSON already."""

ON_RECORD: Final = f"""
CREATE FUNCTION effectfence.on_record(namespace text, intent_key bytea) RETURNS TABLE (
  attempt integer, state effectfence.effect_state, token uuid, seq bigint, agent effectfence.label, domain text,
  tool effectfence.label, args_digest bytea,
  identity_digest bytea, identity_fields text[], vector_clock text, observing boolean, admitted_at timestamptz,
  lease_expires_at timestamptz, on_lease_expiry text, failure text, reason text, has_result boolean, lease_live boolean,
  lease_left_seconds numeric, hash text, body bytea, minted_at timestamptz, reconciled_over jsonb)
LANGUAGE plpgsql STABLE ROWS 1 AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY {PRIOR.strip().format(namespace="$1", intent_key="$2")};
END
$$
"""
"""What the current attempt of an intent says."""

SETTLED: Final = f"""
CREATE FUNCTION effectfence.settled_before(namespace text, domain_key bytea, settled_seq bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ({SETTLED_BEFORE.strip()});
END
$$
"""
"""The number up to which every effect of a domain is settled for good; null when all of them are."""

REFUSE_CHANGE: Final = """
CREATE FUNCTION effectfence.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on effectfence.% is refused: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$
"""

_APPEND_ONLY = ("certificates", "edges", "transitions")
_KEPT = ("branches", "domains", "effects", "intents")

KEPT: Final = tuple(
    statement
    for table in (*_APPEND_ONLY, *_KEPT)
    for kind, event, level in (
        ("rows", "UPDATE OR DELETE" if table in _APPEND_ONLY else "DELETE", "ROW"),
        ("table", "TRUNCATE", "STATEMENT"),
    )
    for statement in (
        f"""CREATE TRIGGER keep_{kind} BEFORE {event} ON effectfence.{table}
        FOR EACH {level} EXECUTE FUNCTION effectfence.refuse_change()""",
        f"ALTER TABLE effectfence.{table} ENABLE ALWAYS TRIGGER keep_{kind}",
    )
)
"""Certificates, edges and transitions are append-only, and no row of any table goes away; also not in a session that poses
as a replica, which triggers otherwise do not see."""

SELECTIVE: Final = tuple(
    f"ALTER TABLE effectfence.{table} ALTER COLUMN namespace SET (n_distinct = 1)" for table in (*_APPEND_ONLY, *_KEPT)
)
"""Whatever the statistics say, a namespace alone selects nothing: every index begins with it, and a plan that used an index
by the namespace only would read the whole tenant, and so conflict with everybody."""

COMMENTS: Final = (
    "COMMENT ON SCHEMA effectfence IS 'Side effects that run once: intents, effects, certificates and their order'",
    """COMMENT ON FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text) IS
    'The exact bytes that a certificate hashes'""",
    """COMMENT ON FUNCTION effectfence.on_record(text, bytea) IS
    'What the current attempt of an intent says, with its certificate'""",
    """COMMENT ON FUNCTION effectfence.settled_before(text, bytea, bigint) IS
    'Up to which number every effect of a domain is settled for good, looking from a number on; null when all are'""",
    """COMMENT ON FUNCTION effectfence.refuse_change() IS
    'Keeps certificates, edges and transitions append-only, and every row of the other tables'""",
)

UNRESOLVED: Final = """
CREATE VIEW effectfence.unresolved AS
SELECT e.namespace, e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent, e.admitted_at, e.renewed_at,
       e.lease_expires_at, clock_timestamp() - e.admitted_at AS age, e.failure, e.reason, e.result IS NOT NULL AS has_result
FROM effectfence.effects e
WHERE e.state IN ('in_flight', 'executed', 'failed', 'aborted')
"""

CERTIFICATE_AUDIT: Final = """
CREATE VIEW effectfence.certificate_audit AS
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
LEFT JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key
"""

VIEW_COMMENTS: Final = (
    "COMMENT ON VIEW effectfence.unresolved IS 'Every effect that was dispatched and is not decided'",
    """COMMENT ON VIEW effectfence.certificate_audit IS
    'Every certificate, recomputed: hash, columns, parent, edges against the read set, clocks going up along edges'""",
)

REVOKED: Final = (
    "REVOKE ALL ON SCHEMA effectfence FROM PUBLIC",
    "REVOKE ALL ON ALL TABLES IN SCHEMA effectfence FROM PUBLIC",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA effectfence FROM PUBLIC",
    # The owner keeps UPDATE on certificates because the foreign key of `parent` locks its rows; the trigger refuses updates.
    "REVOKE DELETE, TRUNCATE ON effectfence.certificates FROM CURRENT_USER",
    "REVOKE UPDATE, DELETE, TRUNCATE ON effectfence.transitions FROM CURRENT_USER",
)

BEFORE_TABLES: Final = ("CREATE SCHEMA IF NOT EXISTS effectfence",)
AFTER_TABLES: Final = (
    CERTIFICATE_BODY,
    ON_RECORD,
    SETTLED,
    REFUSE_CHANGE,
    *KEPT,
    *SELECTIVE,
    UNRESOLVED,
    CERTIFICATE_AUDIT,
    *COMMENTS,
    *VIEW_COMMENTS,
    *REVOKED,
)
