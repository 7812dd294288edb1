"""What metadata cannot say: functions, triggers, views and grants. The migrations carry their own frozen copies.

A test builds one database from these and one from the migrations and compares the catalogues.
"""

from typing import Final

from effectfence_pg.sql import audit_ddl, roles_ddl
from effectfence_pg.sql.admission import PRIOR
from effectfence_pg.sql.certificate_audit import CERTIFICATE_AUDIT
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
  lease_micros bigint, on_lease_expiry text, failure text, reason text, has_result boolean, lease_live boolean,
  lease_left_seconds numeric, hash text, body bytea, minted_micros bigint, reconciled_over jsonb)
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
)

REVOKED: Final = (
    "REVOKE ALL ON SCHEMA effectfence FROM PUBLIC",
    "REVOKE ALL ON ALL TABLES IN SCHEMA effectfence FROM PUBLIC",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA effectfence FROM PUBLIC",
    # The owner keeps UPDATE on certificates because the foreign key of `parent` locks its rows; the trigger refuses updates.
    "REVOKE DELETE, TRUNCATE ON effectfence.certificates FROM CURRENT_USER",
    "REVOKE UPDATE, DELETE, TRUNCATE ON effectfence.transitions FROM CURRENT_USER",
)

AUDIT: Final = (
    audit_ddl.OBSERVATIONS,
    audit_ddl.UNRESOLVED,
    audit_ddl.ATTEMPTS,
    audit_ddl.DOMAIN_HISTORY,
    audit_ddl.LEDGER,
    CERTIFICATE_AUDIT,
    audit_ddl.MISSING,
    audit_ddl.LINEAGE,
    audit_ddl.DEPENDENTS,
    roles_ddl.GRANT_ROLES,
    roles_ddl.ISOLATE,
    roles_ddl.PRUNE,
    *audit_ddl.COMMENTS,
    *roles_ddl.COMMENTS,
    *roles_ddl.TENANTS,
    *roles_ddl.REVOKED,
    *roles_ddl.GRANTED,
)
"""What people read, who may, and retention: in this order, which is that of the grants as well."""

BEFORE_TABLES: Final = ("CREATE SCHEMA IF NOT EXISTS effectfence",)
AFTER_TABLES: Final = (
    CERTIFICATE_BODY,
    ON_RECORD,
    SETTLED,
    roles_ddl.REFUSE_CHANGE,
    *KEPT,
    roles_ddl.KEEP_COMMITTED,
    *SELECTIVE,
    *COMMENTS,
    *REVOKED,
    *AUDIT,
)
