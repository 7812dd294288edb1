"""Create schema effectfence: intents, effects, domains, edges, certificates and transitions.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import postgresql

from effectfence_pg.errors import DatabaseEncodingError

revision = "0001"
down_revision = None
branch_labels = ("effectfence",)
depends_on = None

REFUSE_WHILE_ANYTHING_COUNTS = """
DO $$
DECLARE
  certified bigint;
  undecided bigint;
BEGIN
  -- Whoever is just admitting is waited for, and counted.
  LOCK TABLE effectfence.effects, effectfence.certificates IN ACCESS EXCLUSIVE MODE;
  SELECT count(*) INTO certified FROM effectfence.certificates;
  -- Without its row an effect whose outcome is open would be admitted anew, and run again.
  SELECT count(*) INTO undecided FROM effectfence.effects WHERE state IN ('in_flight', 'executed', 'failed', 'aborted');
  IF certified > 0 THEN
    RAISE EXCEPTION 'certificates exist: export them, then downgrade with -x drop-certificates=yes (certificates: %, '
      'undecided effects: %)', certified, undecided;
  END IF;
  IF undecided > 0 THEN
    RAISE EXCEPTION 'effects are undecided, and would run again: reconcile what effectfence-pg unresolved lists, or drop '
      'them with -x drop-certificates=yes (undecided effects: %)', undecided;
  END IF;
END
$$
"""

TENANT = postgresql.DOMAIN(
    "tenant",
    sa.Text(),
    collation="C",
    schema="effectfence",
    constraint_name="size",
    check="octet_length(VALUE) <= 128",
    create_type=False,
)
LABEL = postgresql.DOMAIN(
    "label",
    sa.Text(),
    schema="effectfence",
    constraint_name="size",
    check="octet_length(VALUE) <= 1024",
    create_type=False,
)
EFFECT_STATE = postgresql.DOMAIN(
    "effect_state",
    sa.Text(),
    schema="effectfence",
    constraint_name="known",
    check="VALUE IN ('in_flight', 'executed', 'committed', 'failed', 'aborted', 'released', 'superseded')",
    create_type=False,
)

TYPES = (
    'CREATE DOMAIN effectfence.tenant AS text COLLATE "C" CONSTRAINT size CHECK (octet_length(VALUE) <= 128)',
    "CREATE DOMAIN effectfence.label AS text CONSTRAINT size CHECK (octet_length(VALUE) <= 1024)",
    """CREATE DOMAIN effectfence.effect_state AS text CONSTRAINT known CHECK (VALUE IN (
        'in_flight', 'executed', 'committed', 'failed', 'aborted', 'released', 'superseded'))""",
)

STATEMENTS = (
    """CREATE FUNCTION effectfence.certificate_body(
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
  || ',"agent":' || CAST(to_json(agent) AS text) || '}', 'UTF8')""",
    """CREATE FUNCTION effectfence.on_record(namespace text, intent_key bytea) RETURNS TABLE (
  attempt integer, state effectfence.effect_state, token uuid, seq bigint, agent effectfence.label, domain text,
  tool effectfence.label, args_digest bytea,
  identity_digest bytea, identity_fields text[], vector_clock text, observing boolean, admitted_at timestamptz,
  lease_expires_at timestamptz, on_lease_expiry text, failure text, reason text, has_result boolean, lease_live boolean,
  lease_left_seconds numeric, hash text, body bytea, minted_at timestamptz, reconciled_over jsonb)
LANGUAGE plpgsql STABLE ROWS 1 AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT e.attempt, e.state, e.token, e.seq, e.agent, e.domain, e.tool, e.args_digest, e.identity_digest, e.identity_fields,
         e.vector_clock, e.observing, e.admitted_at, e.lease_expires_at, e.on_lease_expiry, e.failure, e.reason,
         e.result IS NOT NULL AS has_result, e.lease_expires_at > clock_timestamp() AS lease_live,
         greatest(extract(epoch FROM e.lease_expires_at - clock_timestamp()), 0) AS lease_left_seconds,
         c.hash, c.body, c.minted_at, c.reconciled_over
  FROM effectfence.intents i
  CROSS JOIN LATERAL (
    -- LIMIT 1, here and wherever one row is joined by its key: where many namespaces use the same few names, such a join is
    -- taken for thousands of rows, and a statement that seems to have millions is compiled, for seconds.
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt LIMIT 1) AS e
  LEFT JOIN LATERAL (
    SELECT c.hash, c.body, c.minted_at, c.reconciled_over FROM effectfence.certificates c
    WHERE c.namespace = i.namespace AND c.intent_key = i.intent_key LIMIT 1) AS c ON true
  WHERE i.namespace = $1 AND i.intent_key = $2;
END
$$""",
    """CREATE FUNCTION effectfence.settled_before(namespace text, domain_key bytea, settled_seq bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT e.seq - 1 FROM effectfence.effects e
  WHERE e.namespace = $1 AND e.domain_key = $2 AND e.seq > $3 AND e.state NOT IN ('committed', 'released', 'superseded')
  ORDER BY e.seq LIMIT 1);
END
$$""",
    """CREATE FUNCTION effectfence.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on effectfence.% is refused: its rows are kept', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'insufficient_privilege';
END
$$""",
    """CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON effectfence.certificates
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.certificates ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.certificates
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.certificates ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON effectfence.edges
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.edges ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.edges
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.edges ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON effectfence.transitions
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.transitions ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.transitions
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.transitions ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE DELETE ON effectfence.branches
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.branches ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.branches
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.branches ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE DELETE ON effectfence.domains
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.domains ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.domains
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.domains ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE DELETE ON effectfence.effects
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.effects ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.effects
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.effects ENABLE ALWAYS TRIGGER keep_table""",
    """CREATE TRIGGER keep_rows BEFORE DELETE ON effectfence.intents
        FOR EACH ROW EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.intents ENABLE ALWAYS TRIGGER keep_rows""",
    """CREATE TRIGGER keep_table BEFORE TRUNCATE ON effectfence.intents
        FOR EACH STATEMENT EXECUTE FUNCTION effectfence.refuse_change()""",
    """ALTER TABLE effectfence.intents ENABLE ALWAYS TRIGGER keep_table""",
    """ALTER TABLE effectfence.certificates ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.edges ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.transitions ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.branches ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.domains ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.effects ALTER COLUMN namespace SET (n_distinct = 1)""",
    """ALTER TABLE effectfence.intents ALTER COLUMN namespace SET (n_distinct = 1)""",
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
    """COMMENT ON SCHEMA effectfence IS 'Side effects that run once: intents, effects, certificates and their order'""",
    """COMMENT ON FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text) IS
    'The exact bytes that a certificate hashes'""",
    """COMMENT ON FUNCTION effectfence.on_record(text, bytea) IS
    'What the current attempt of an intent says, with its certificate'""",
    """COMMENT ON FUNCTION effectfence.settled_before(text, bytea, bigint) IS
    'Up to which number every effect of a domain is settled for good, looking from a number on; null when all are'""",
    """COMMENT ON FUNCTION effectfence.refuse_change() IS
    'Keeps certificates, edges and transitions append-only, and every row of the other tables'""",
    """COMMENT ON VIEW effectfence.unresolved IS 'Every effect that was dispatched and is not decided'""",
    """COMMENT ON VIEW effectfence.certificate_audit IS
    'Every certificate, recomputed: hash, columns, parent, edges against the read set, clocks going up along edges'""",
    """REVOKE ALL ON SCHEMA effectfence FROM PUBLIC""",
    """REVOKE ALL ON ALL TABLES IN SCHEMA effectfence FROM PUBLIC""",
    """REVOKE ALL ON ALL FUNCTIONS IN SCHEMA effectfence FROM PUBLIC""",
    """REVOKE DELETE, TRUNCATE ON effectfence.certificates FROM CURRENT_USER""",
    """REVOKE UPDATE, DELETE, TRUNCATE ON effectfence.transitions FROM CURRENT_USER""",
)


def upgrade() -> None:
    encoding = None if context.is_offline_mode() else op.get_bind().scalar(sa.text("SELECT getdatabaseencoding()"))
    if encoding not in {None, "UTF8"}:
        raise DatabaseEncodingError(encoding=str(encoding))
    for kind in TYPES:
        op.execute(kind)
    op.create_table(
        "branches",
        sa.Column("namespace", TENANT, nullable=False, comment="Isolation scope (tenant); part of every key"),
        sa.Column("branch_key", sa.LargeBinary(), nullable=False, comment="SHA-256 of the branch"),
        sa.Column("branch", LABEL, nullable=False, comment="A label that groups the speculative effects of one plan"),
        sa.Column("state", sa.Text(), nullable=False, comment="open, then committed or aborted, once"),
        sa.Column(
            "version",
            sa.BigInteger(),
            nullable=False,
            comment="Optimistic version: the decision is a compare-and-set on it",
        ),
        sa.Column(
            "opened_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="First admission of an effect of it, database time",
        ),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True, comment="Database time"),
        sa.Column("actor", sa.Text(), nullable=True, comment="Who decided"),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why"),
        sa.CheckConstraint("state = 'open' OR decided_at IS NOT NULL", name=op.f("ck_branches_decided")),
        sa.CheckConstraint("state IN ('open', 'committed', 'aborted')", name=op.f("ck_branches_state")),
        sa.PrimaryKeyConstraint("namespace", "branch_key", name=op.f("pk_branches")),
        schema="effectfence",
        comment="Branches: speculative plans, each decided once",
        postgresql_with={
            "fillfactor": "80",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_table(
        "certificates",
        sa.Column(
            "namespace", sa.Text(collation="C"), nullable=False, comment="Isolation scope (tenant); part of every key"
        ),
        sa.Column(
            "hash",
            sa.Text(collation="C"),
            nullable=False,
            comment="Lower hex SHA-256 of body: the certificate's address",
        ),
        sa.Column(
            "intent_key",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 of the intent; at most one certificate for each",
        ),
        sa.Column("attempt", sa.Integer(), nullable=False, comment="The attempt that was committed"),
        sa.Column("parent", sa.Text(collation="C"), nullable=True, comment="Hash of the parent certificate"),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="The exact bytes that were hashed"),
        sa.Column("minted_at", sa.DateTime(timezone=True), nullable=False, comment="Database time"),
        sa.Column(
            "reconciled_over",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="Blockers and operator, when minted over a dead closure",
        ),
        sa.CheckConstraint("hash = encode(sha256(body), 'hex')", name=op.f("ck_certificates_hash")),
        sa.ForeignKeyConstraint(
            ["namespace", "parent"],
            ["effectfence.certificates.namespace", "effectfence.certificates.hash"],
            name="fk_certificates_parent",
        ),
        sa.PrimaryKeyConstraint("namespace", "hash", name=op.f("pk_certificates")),
        sa.UniqueConstraint("namespace", "intent_key", name="uq_certificates_intent"),
        schema="effectfence",
        comment="Certificates: immutable, content-addressed records of committed effects; append-only",
        postgresql_with={
            "fillfactor": "100",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_table(
        "domains",
        sa.Column("namespace", TENANT, nullable=False, comment="Isolation scope (tenant); part of every key"),
        sa.Column("domain_key", sa.LargeBinary(), nullable=False, comment="SHA-256 of the domain's name"),
        sa.Column("domain", LABEL, nullable=False, comment="Named contention scope, for example order:123"),
        sa.Column(
            "seq",
            sa.BigInteger(),
            nullable=False,
            comment="Last number given; only grows, and is the optimistic version of the row",
        ),
        sa.Column(
            "settled_seq",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Every effect up to this number is settled for good; advanced lazily",
        ),
        sa.Column(
            "last_operation",
            sa.Uuid(),
            nullable=True,
            comment="The bare compare-and-set that gave seq, so that a lost answer can be read back",
        ),
        sa.PrimaryKeyConstraint("namespace", "domain_key", name=op.f("pk_domains")),
        schema="effectfence",
        comment="Domain versions: one row per named contention scope",
        postgresql_with={
            "fillfactor": "50",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_table(
        "effects",
        sa.Column(
            "namespace", sa.Text(collation="C"), nullable=False, comment="Isolation scope (tenant); part of every key"
        ),
        sa.Column("intent_key", sa.LargeBinary(), nullable=False, comment="SHA-256 of the intent"),
        sa.Column("attempt", sa.Integer(), nullable=False, comment="Number of this attempt of the intent: 1, 2, ..."),
        sa.Column(
            "state",
            EFFECT_STATE,
            nullable=False,
            comment="in_flight, executed, committed, failed, aborted, released or superseded",
        ),
        sa.Column(
            "version",
            sa.BigInteger(),
            nullable=False,
            comment="Optimistic version of the row; transitions carry the version they made",
        ),
        sa.Column("token", sa.Uuid(), nullable=False, comment="Fencing token: only its holder moves the effect"),
        sa.Column("intent", sa.Text(), nullable=False, comment="Stable id of the logical action"),
        sa.Column("domain_key", sa.LargeBinary(), nullable=False, comment="SHA-256 of the domain's name"),
        sa.Column("domain", sa.Text(), nullable=False, comment="The domain the effect acts on"),
        sa.Column(
            "seq",
            sa.BigInteger(),
            nullable=False,
            comment="The number reserved in the domain; given to no other effect",
        ),
        sa.Column("tool", LABEL, nullable=False, comment="The tool that acts"),
        sa.Column("agent", LABEL, nullable=False, comment="Who holds the effect"),
        sa.Column("args", sa.Text(), nullable=False, comment="Arguments at admission, canonical JSON"),
        sa.Column(
            "args_digest",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 of domain, tool and all arguments, compared by value",
        ),
        sa.Column(
            "identity_digest",
            sa.LargeBinary(),
            nullable=False,
            comment="SHA-256 of domain, tool and the declared identity fields",
        ),
        sa.Column(
            "identity_fields",
            postgresql.ARRAY(sa.Text()),
            nullable=True,
            comment="Names of the declared identity fields; null when none were declared",
        ),
        sa.Column("parent", sa.Text(collation="C"), nullable=True, comment="Hash of the parent certificate"),
        sa.Column("vector_clock", sa.Text(), nullable=False, comment="Vector clock, canonical JSON"),
        sa.Column(
            "read_set", sa.Text(), nullable=False, comment="Read set as it stands in the certificate, canonical JSON"
        ),
        sa.Column(
            "read_keys",
            postgresql.ARRAY(sa.LargeBinary()),
            nullable=False,
            comment="Domain keys of the read set, in the caller's order",
        ),
        sa.Column(
            "read_seqs",
            postgresql.ARRAY(sa.BigInteger()),
            nullable=False,
            comment="Numbers of the read set, in the same order",
        ),
        sa.Column(
            "observing",
            sa.Boolean(),
            nullable=False,
            comment="Whether the effect observed others, so that it has edges",
        ),
        sa.Column(
            "on_stale", sa.Text(), nullable=False, comment="What a moved read set does at commit: fail or certify"
        ),
        sa.Column(
            "on_lease_expiry",
            sa.Text(),
            nullable=False,
            comment="What an expired lease means for a duplicate: fence, takeover or verify",
        ),
        sa.Column(
            "took_over", sa.Boolean(), nullable=False, comment="Whether an earlier attempt lost its lease to this one"
        ),
        sa.Column(
            "lease_seconds", sa.Double(), nullable=False, comment="How long the effect may run unheard of, seconds"
        ),
        sa.Column(
            "lease_expires_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="End of the lease, database time; null once the holder reported",
        ),
        sa.Column(
            "admitted_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="Admission, database time after every lock wait",
        ),
        sa.Column(
            "renewed_at", sa.DateTime(timezone=True), nullable=True, comment="Last renewal of the lease, database time"
        ),
        sa.Column(
            "executed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the result was recorded while undecided, database time",
        ),
        sa.Column("branch_key", sa.LargeBinary(), nullable=True, comment="SHA-256 of the branch"),
        sa.Column("branch", sa.Text(), nullable=True, comment="The speculative plan that the effect belongs to"),
        sa.Column("compensation", sa.Text(), nullable=True, comment="How to undo it by meaning: tool and args, JSON"),
        sa.Column(
            "undoes_key",
            sa.LargeBinary(),
            nullable=True,
            comment="For a compensation: the intent of the effect that it undoes",
        ),
        sa.Column(
            "undoes_attempt", sa.Integer(), nullable=True, comment="For a compensation: the attempt that it undoes"
        ),
        sa.Column(
            "commit_asked",
            sa.Boolean(),
            nullable=False,
            comment="The holder asked for the commit; settling may finish it",
        ),
        sa.Column(
            "result",
            sa.Text(),
            nullable=True,
            comment="Recorded result, canonical JSON; never changes once it is there",
        ),
        sa.Column(
            "failure",
            sa.Text(),
            nullable=True,
            comment="The cause that led to the present state, when it is a dead one",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="The same in words"),
        sa.Column(
            "last_operation",
            sa.Uuid(),
            nullable=True,
            comment="The last call that changed the row, so that a lost answer can be read back",
        ),
        sa.PrimaryKeyConstraint("namespace", "intent_key", "attempt", name=op.f("pk_effects")),
        sa.UniqueConstraint("namespace", "domain_key", "seq", name="uq_effects_domain_seq"),
        schema="effectfence",
        comment="Effects: one row per admitted attempt of an intent",
        postgresql_with={
            "fillfactor": "50",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_index(
        "ix_effects_branch",
        "effects",
        ["namespace", "branch_key"],
        unique=False,
        schema="effectfence",
        postgresql_where=sa.text("branch_key IS NOT NULL"),
    )
    op.create_table(
        "intents",
        sa.Column("namespace", TENANT, nullable=False, comment="Isolation scope (tenant); part of every key"),
        sa.Column("intent_key", sa.LargeBinary(), nullable=False, comment="SHA-256 of the intent"),
        sa.Column(
            "intent",
            LABEL,
            nullable=False,
            comment="Stable id of one logical action; attempts that share it are the same action",
        ),
        sa.Column(
            "attempt",
            sa.Integer(),
            nullable=False,
            comment="The current attempt; its row in effects says where the intent stands",
        ),
        sa.Column(
            "version",
            sa.BigInteger(),
            nullable=False,
            comment="Optimistic version: every new attempt is a compare-and-set on it",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, comment="First admission, database time"),
        sa.Column(
            "undoes_key",
            sa.LargeBinary(),
            nullable=True,
            comment="For a compensation: the intent of the effect that it undoes",
        ),
        sa.Column(
            "undoes_attempt", sa.Integer(), nullable=True, comment="For a compensation: the attempt that it undoes"
        ),
        sa.PrimaryKeyConstraint("namespace", "intent_key", name=op.f("pk_intents")),
        schema="effectfence",
        comment="Intents: one row per logical action",
        postgresql_with={
            "fillfactor": "80",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_index(
        "uq_intents_undoes",
        "intents",
        ["namespace", "undoes_key", "undoes_attempt"],
        unique=True,
        schema="effectfence",
        postgresql_where=sa.text("undoes_key IS NOT NULL"),
    )
    op.create_table(
        "transitions",
        sa.Column(
            "namespace", sa.Text(collation="C"), nullable=False, comment="Isolation scope (tenant); part of every key"
        ),
        sa.Column("intent_key", sa.LargeBinary(), nullable=False, comment="The effect's intent"),
        sa.Column("attempt", sa.Integer(), nullable=False, comment="The effect's attempt"),
        sa.Column(
            "version", sa.BigInteger(), nullable=False, comment="Version of the effect's row that this change made"
        ),
        sa.Column("from_state", sa.Text(), nullable=True, comment="State before; null for the admission"),
        sa.Column(
            "to_state",
            sa.Text(),
            nullable=False,
            comment="State after; equal to from_state when only evidence was added",
        ),
        sa.Column("cause", sa.Text(), nullable=False, comment="What kind of event caused it"),
        sa.Column(
            "actor", sa.Text(), nullable=False, comment="Who caused it: an agent, an operator or the fence itself"
        ),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
            comment="Database time",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="The same in words"),
        sa.Column(
            "evidence",
            sa.Text(),
            nullable=True,
            comment="What was reported or shown: a late result, an operator's evidence; JSON",
        ),
        sa.Column(
            "origin_key", sa.LargeBinary(), nullable=True, comment="Intent of the effect whose end cascaded to this one"
        ),
        sa.Column("origin_attempt", sa.Integer(), nullable=True, comment="Its attempt"),
        sa.PrimaryKeyConstraint("namespace", "intent_key", "attempt", "version", name=op.f("pk_transitions")),
        schema="effectfence",
        comment="Transitions: every change of every effect, with cause, actor and time; append-only",
        postgresql_with={
            "fillfactor": "100",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_table(
        "edges",
        sa.Column(
            "namespace", sa.Text(collation="C"), nullable=False, comment="Isolation scope (tenant); part of every key"
        ),
        sa.Column("intent_key", sa.LargeBinary(), nullable=False, comment="The effect that observed"),
        sa.Column("attempt", sa.Integer(), nullable=False, comment="Its attempt"),
        sa.Column("observed_key", sa.LargeBinary(), nullable=False, comment="The effect that was observed"),
        sa.Column(
            "observed_attempt",
            sa.Integer(),
            nullable=False,
            comment="Its attempt: an edge names an attempt, not an intent",
        ),
        sa.Column("via", sa.Text(), nullable=False, comment="How it was observed: read_set, observes or parent"),
        sa.CheckConstraint("via IN ('read_set', 'observes', 'parent')", name=op.f("ck_edges_via")),
        sa.CheckConstraint(
            "intent_key <> observed_key OR attempt <> observed_attempt", name=op.f("ck_edges_not_itself")
        ),
        sa.ForeignKeyConstraint(
            ["namespace", "intent_key", "attempt"],
            ["effectfence.effects.namespace", "effectfence.effects.intent_key", "effectfence.effects.attempt"],
            name="fk_edges_effects",
        ),
        sa.ForeignKeyConstraint(
            ["namespace", "observed_key", "observed_attempt"],
            ["effectfence.effects.namespace", "effectfence.effects.intent_key", "effectfence.effects.attempt"],
            name="fk_edges_observed",
        ),
        sa.PrimaryKeyConstraint(
            "namespace", "intent_key", "attempt", "observed_key", "observed_attempt", name=op.f("pk_edges")
        ),
        schema="effectfence",
        comment="Dependency edges: one effect observed another",
        postgresql_with={
            "fillfactor": "100",
            "autovacuum_analyze_threshold": "1000",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_insert_threshold": "1000",
        },
    )
    op.create_index(
        "ix_edges_observed",
        "edges",
        ["namespace", "observed_key", "observed_attempt"],
        unique=False,
        schema="effectfence",
    )
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    allowed = context.get_x_argument(as_dictionary=True).get("drop-certificates") == "yes"
    allowed = allowed or bool(context.config.attributes.get("drop_certificates"))
    if not allowed:
        # In SQL, so that a printed downgrade refuses as well.
        op.execute(REFUSE_WHILE_ANYTHING_COUNTS)
    for view in ("certificate_audit", "unresolved"):
        op.execute(f"DROP VIEW effectfence.{view}")
    for table in ("transitions", "certificates", "edges", "effects", "branches", "intents", "domains"):
        op.drop_table(table, schema="effectfence")
    op.execute("DROP FUNCTION effectfence.refuse_change()")
    op.execute("DROP FUNCTION effectfence.settled_before(text, bytea, bigint)")
    op.execute("DROP FUNCTION effectfence.on_record(text, bytea)")
    op.execute(
        "DROP FUNCTION effectfence.certificate_body(text, text, text, bigint, text, text, text, text, text, text)"
    )
    for kind in ("effect_state", "label", "tenant"):
        op.execute(f"DROP DOMAIN effectfence.{kind}")
