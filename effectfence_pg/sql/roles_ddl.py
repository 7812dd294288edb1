"""Who may do what: three roles, row security by namespace, and the one function that removes anything."""

from typing import Final

from effectfence_pg.sql.audit_ddl import VIEWS, WALKS

ROLES: Final = ("effectfence_app", "effectfence_operator", "effectfence_auditor")
"""Of the whole cluster: every database with the schema grants to the same three."""

TENANT_SETTING: Final = "effectfence.namespace"
"""The setting that row security compares with; set for a transaction (SET LOCAL) or by the connection's options."""

TABLES: Final = ("branches", "certificates", "domains", "edges", "effects", "intents", "transitions")

CHANGING: Final = {
    "branches": "state, version, decided_at, actor, reason",
    "domains": "seq, settled_seq, last_operation",
    "effects": "state, version, lease_expires_at, renewed_at, executed_at, commit_asked, result, failure, reason, "
    "last_operation, vector_clock, read_set, read_keys, read_seqs, observing",
    "intents": "attempt, version",
}
"""The columns that verbs change. Nobody but the owner may change another one, and in the other tables nothing at all."""

_WALK_NAMES: Final = ", ".join(f"effectfence.{name}(text, text)" for name in WALKS)
_BODY: Final = "effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text)"
_HELPERS: Final = f"{_BODY}, effectfence.on_record(text, bytea), effectfence.settled_before(text, bytea, bigint)"
_TABLE_NAMES: Final = ", ".join(f"effectfence.{name}" for name in TABLES)
_VIEW_NAMES: Final = ", ".join(f"effectfence.{name}" for name in VIEWS)

_VERBS: Final = (
    "GRANT USAGE ON SCHEMA effectfence TO {role}",
    f"GRANT SELECT, INSERT ON {_TABLE_NAMES} TO {{role}}",
    *(f"GRANT UPDATE ({columns}) ON effectfence.{table} TO {{role}}" for table, columns in CHANGING.items()),
    f"GRANT EXECUTE ON FUNCTION {_HELPERS} TO {{role}}",
)
_READING: Final = (
    f"GRANT SELECT ON {_VIEW_NAMES} TO {{role}}",
    f"GRANT EXECUTE ON FUNCTION {_WALK_NAMES} TO {{role}}",
)

GRANTS: Final = {
    "effectfence_app": _VERBS,
    "effectfence_operator": (*_VERBS, *_READING),
    "effectfence_auditor": (
        "GRANT USAGE ON SCHEMA effectfence TO {role}",
        f"GRANT EXECUTE ON FUNCTION {_BODY} TO {{role}}",
        *_READING,
    ),
}


def _granting(role: str) -> str:
    statements = ";\n    ".join(statement.format(role=role) for statement in GRANTS[role])
    return f"""
  BEGIN
    IF to_regrole('{role}') IS NULL THEN
      CREATE ROLE {role} NOLOGIN;
    END IF;
    {statements};
    IF to_regclass('effectfence.alembic_version') IS NOT NULL THEN
      GRANT SELECT ON effectfence.alembic_version TO {role};
    END IF;
    given := given || CAST('{role}' AS text);
  EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation OR undefined_object THEN
      RAISE NOTICE 'effectfence: {role} was not granted (%). As an administrator: CREATE ROLE {role} NOLOGIN; then, as the '
        'owner of the schema: SELECT effectfence.grant_roles()', SQLERRM;
  END;"""


GRANT_ROLES: Final = f"""
CREATE FUNCTION effectfence.grant_roles() RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  given text[] := '{{}}';
BEGIN{"".join(_granting(role) for role in ROLES)}
  IF 'effectfence_operator' = ANY (given) THEN
    {"; ".join(f"DROP POLICY IF EXISTS operators ON effectfence.{table}" for table in TABLES)};
    {"; ".join(f"CREATE POLICY operators ON effectfence.{table} TO effectfence_operator USING (true)" for table in TABLES)};
  END IF;
  RETURN given;
END
$$
"""
"""Creates the roles where that is permitted, and grants; to be run again once an administrator has created them."""

TENANTS: Final = tuple(
    f"""CREATE POLICY tenants ON effectfence.{table}
        USING (namespace = (SELECT current_setting('{TENANT_SETTING}', true)))"""
    for table in TABLES
)
"""Does nothing until row security is switched on. Without the setting nothing is seen, and nothing can be written."""

ISOLATE: Final = """
CREATE FUNCTION effectfence.isolate_namespaces(enabled boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[{tables}] LOOP
    EXECUTE format('ALTER TABLE effectfence.%I %s ROW LEVEL SECURITY', name,
                   CASE WHEN enabled THEN 'ENABLE' ELSE 'DISABLE' END);
  END LOOP;
END
$$
""".replace("{tables}", ", ".join(f"'{table}'" for table in TABLES))

PRUNE: Final = """
CREATE FUNCTION effectfence.prune(older_than interval, batch integer DEFAULT 1000)
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
$$
"""
"""One batch, in the caller's transaction; called until it returns nothing. Off unless somebody calls it."""

REFUSE_CHANGE: Final = """
CREATE OR REPLACE FUNCTION effectfence.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'transitions'
     AND current_setting('effectfence.pruning', true) = CAST(pg_current_xact_id_if_assigned() AS text) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% on effectfence.% is refused: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$
"""

KEEP_COMMITTED: Final = """
CREATE TRIGGER keep_committed AFTER UPDATE ON effectfence.effects
        FOR EACH ROW WHEN (OLD.state = 'committed') EXECUTE FUNCTION effectfence.refuse_change()
"""
"""What has a certificate is final: rights on columns alone would let those who act make it runnable again. It looks after the
change, which is undone then: a trigger before it would lock once more every row that is changed."""

COMMENTS: Final = (
    """COMMENT ON FUNCTION effectfence.refuse_change() IS
    'Keeps certificates, edges and transitions append-only, and every row of the other tables; prune() alone is let through'""",
    """COMMENT ON FUNCTION effectfence.grant_roles() IS
    'Creates effectfence_app, effectfence_operator and effectfence_auditor where permitted, and grants; again at any time'""",
    """COMMENT ON FUNCTION effectfence.isolate_namespaces(boolean) IS
    'Switches row security by namespace on or off; on, a session sees the namespace in effectfence.namespace only'""",
    """COMMENT ON FUNCTION effectfence.prune(interval, integer) IS
    'Retention, one batch: transitions of settled intents, and results without a certificate; never late evidence'""",
)

REVOKED: Final = (
    f"REVOKE ALL ON {_VIEW_NAMES} FROM PUBLIC",
    f"REVOKE ALL ON FUNCTION {_WALK_NAMES} FROM PUBLIC",
    """REVOKE ALL ON FUNCTION effectfence.grant_roles(), effectfence.isolate_namespaces(boolean),
    effectfence.prune(interval, integer) FROM PUBLIC""",
    # prune() runs as the owner; the trigger still refuses every other removal.
    "GRANT DELETE ON effectfence.transitions TO CURRENT_USER",
)

GRANTED: Final = ("SELECT effectfence.grant_roles()",)
