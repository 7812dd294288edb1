r"""The tables of schema `effectfence`, as metadata; the comments are what an auditor reads with `\d+`.

Keys are SHA-256 digests with the text beside them for people: no shared prefixes (which would put unrelated rows under one
predicate lock) and no limit of an index row. No index contains a column that changes: every state change stays a heap-only
update, so it writes no index page that another serializable transaction has read.

CHECK constraints of a table are parsed and planned anew by every statement that writes it (with one for each column they were
half of the server's time of an admission); those of a type are kept. So states and sizes belong to the types of the columns,
and few are left to the tables.

Foreign keys stand where an admission or a commit that rests on nothing does not pass: on edges and on a certificate's parent.
The check of a foreign key is a query of the server's own, which reads the index page that the same transaction has just
inserted into, and on young tables scans the whole namespace: with foreign keys on the hot path 285 to 368 of 1,000 operations
of 16 threads were retried at 1,000 intents, without them none. What they would guard holds another way: one statement makes an
effect with its intent, its number and its transition, triggers refuse every deletion, and the audit view names an orphan.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOMAIN, JSONB

from effectfence_pg.protocol.states import State

SCHEMA: Final = "effectfence"

SCHEMA_VERSION: Final = "0003"
"""The revision that this version of the library works with."""

UPGRADE_COMMAND: Final = "effectfence-pg db upgrade"
"""What brings a database to it."""

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    },
)

CODE: Final = Text(collation="C")
"""Text that machines compare: by bytes, whatever the collation of the database."""

_STATES = ", ".join(f"'{state}'" for state in State)

TENANT = DOMAIN(
    "tenant", Text(), collation="C", schema=SCHEMA, constraint_name="size", check="octet_length(VALUE) <= 128"
)
LABEL = DOMAIN("label", Text(), schema=SCHEMA, constraint_name="size", check="octet_length(VALUE) <= 1024")
EFFECT_STATE = DOMAIN("effect_state", Text(), schema=SCHEMA, constraint_name="known", check=f"VALUE IN ({_STATES})")


def _storage(*, fillfactor: int = 100) -> dict[str, str]:
    """How a table is kept: room for heap-only updates, and no statistics of a table that is a few pages long.

    A plan made for such a table reads it as a whole, and stays in use when it has grown.
    """
    seldom = dict.fromkeys(
        ("autovacuum_analyze_threshold", "autovacuum_vacuum_threshold", "autovacuum_vacuum_insert_threshold"), "1000"
    )
    return {"fillfactor": str(fillfactor), **seldom}


def _namespace(kind: Any = CODE) -> Column[str]:
    return Column("namespace", kind, nullable=False, comment="Isolation scope (tenant); part of every key")


def _column(name: str, kind: Any, comment: str, *, null: bool = False, default: str | None = None) -> Column[Any]:
    return Column(name, kind, nullable=null, comment=comment, server_default=None if default is None else text(default))


domains = Table(
    "domains",
    metadata,
    _namespace(TENANT),
    _column("domain_key", LargeBinary, "SHA-256 of the domain's name"),
    _column("domain", LABEL, "Named contention scope, for example order:123"),
    _column("seq", BigInteger, "Last number given; only grows, and is the optimistic version of the row"),
    _column(
        "settled_seq", BigInteger, "Every effect up to this number is settled for good; advanced lazily", default="0"
    ),
    _column(
        "last_operation",
        Uuid,
        "The bare compare-and-set that gave seq, so that a lost answer can be read back",
        null=True,
    ),
    PrimaryKeyConstraint("namespace", "domain_key"),
    comment="Domain versions: one row per named contention scope",
    postgresql_with=_storage(fillfactor=50),
)

intents = Table(
    "intents",
    metadata,
    _namespace(TENANT),
    _column("intent_key", LargeBinary, "SHA-256 of the intent"),
    _column("intent", LABEL, "Stable id of one logical action; attempts that share it are the same action"),
    _column("attempt", Integer, "The current attempt; its row in effects says where the intent stands"),
    _column("version", BigInteger, "Optimistic version: every new attempt is a compare-and-set on it"),
    _column("created_at", DateTime(timezone=True), "First admission, database time"),
    _column("undoes_key", LargeBinary, "For a compensation: the intent of the effect that it undoes", null=True),
    _column("undoes_attempt", Integer, "For a compensation: the attempt that it undoes", null=True),
    PrimaryKeyConstraint("namespace", "intent_key"),
    Index(
        "uq_intents_undoes",
        "namespace",
        "undoes_key",
        "undoes_attempt",
        unique=True,
        postgresql_where=text("undoes_key IS NOT NULL"),
    ),
    comment="Intents: one row per logical action",
    postgresql_with=_storage(fillfactor=80),
)

branches = Table(
    "branches",
    metadata,
    _namespace(TENANT),
    _column("branch_key", LargeBinary, "SHA-256 of the branch"),
    _column("branch", LABEL, "A label that groups the speculative effects of one plan"),
    _column("state", Text, "open, then committed or aborted, once"),
    _column("version", BigInteger, "Optimistic version: the decision is a compare-and-set on it"),
    _column("opened_at", DateTime(timezone=True), "First admission of an effect of it, database time"),
    _column("decided_at", DateTime(timezone=True), "Database time", null=True),
    _column("actor", Text, "Who decided", null=True),
    _column("reason", Text, "Why", null=True),
    PrimaryKeyConstraint("namespace", "branch_key"),
    CheckConstraint("state IN ('open', 'committed', 'aborted')", name="state"),
    CheckConstraint("state = 'open' OR decided_at IS NOT NULL", name="decided"),
    comment="Branches: speculative plans, each decided once",
    postgresql_with=_storage(fillfactor=80),
)

effects = Table(
    "effects",
    metadata,
    _namespace(),
    _column("intent_key", LargeBinary, "SHA-256 of the intent"),
    _column("attempt", Integer, "Number of this attempt of the intent: 1, 2, ..."),
    _column("state", EFFECT_STATE, "in_flight, executed, committed, failed, aborted, released or superseded"),
    _column("version", BigInteger, "Optimistic version of the row; transitions carry the version they made"),
    _column("token", Uuid, "Fencing token: only its holder moves the effect"),
    _column("intent", Text, "Stable id of the logical action"),
    _column("domain_key", LargeBinary, "SHA-256 of the domain's name"),
    _column("domain", Text, "The domain the effect acts on"),
    _column("seq", BigInteger, "The number reserved in the domain; given to no other effect"),
    _column("tool", LABEL, "The tool that acts"),
    _column("agent", LABEL, "Who holds the effect"),
    _column("args", Text, "Arguments at admission, canonical JSON"),
    _column("args_digest", LargeBinary, "SHA-256 of domain, tool and all arguments, compared by value"),
    _column("identity_digest", LargeBinary, "SHA-256 of domain, tool and the declared identity fields"),
    _column(
        "identity_fields", ARRAY(Text), "Names of the declared identity fields; null when none were declared", null=True
    ),
    _column("parent", CODE, "Hash of the parent certificate", null=True),
    _column("vector_clock", Text, "Vector clock, canonical JSON"),
    _column("read_set", Text, "Read set as it stands in the certificate, canonical JSON"),
    _column("read_keys", ARRAY(LargeBinary), "Domain keys of the read set, in the caller's order"),
    _column("read_seqs", ARRAY(BigInteger), "Numbers of the read set, in the same order"),
    _column("observing", Boolean, "Whether the effect observed others, so that it has edges"),
    _column("on_stale", Text, "What a moved read set does at commit: fail or certify"),
    _column("on_lease_expiry", Text, "What an expired lease means for a duplicate: fence, takeover or verify"),
    _column("took_over", Boolean, "Whether an earlier attempt lost its lease to this one"),
    _column("lease_seconds", Double, "How long the effect may run unheard of, seconds"),
    _column(
        "lease_expires_at",
        DateTime(timezone=True),
        "End of the lease, database time; null once the holder reported",
        null=True,
    ),
    _column("admitted_at", DateTime(timezone=True), "Admission, database time after every lock wait"),
    _column("renewed_at", DateTime(timezone=True), "Last renewal of the lease, database time", null=True),
    _column(
        "executed_at", DateTime(timezone=True), "When the result was recorded while undecided, database time", null=True
    ),
    _column("branch_key", LargeBinary, "SHA-256 of the branch", null=True),
    _column("branch", Text, "The speculative plan that the effect belongs to", null=True),
    _column("compensation", Text, "How to undo it by meaning: tool and args, JSON", null=True),
    _column("undoes_key", LargeBinary, "For a compensation: the intent of the effect that it undoes", null=True),
    _column("undoes_attempt", Integer, "For a compensation: the attempt that it undoes", null=True),
    _column("commit_asked", Boolean, "The holder asked for the commit; settling may finish it"),
    _column("result", Text, "Recorded result, canonical JSON; never changes once it is there", null=True),
    _column("failure", Text, "The cause that led to the present state, when it is a dead one", null=True),
    _column("reason", Text, "The same in words", null=True),
    _column(
        "last_operation", Uuid, "The last call that changed the row, so that a lost answer can be read back", null=True
    ),
    PrimaryKeyConstraint("namespace", "intent_key", "attempt"),
    UniqueConstraint("namespace", "domain_key", "seq", name="uq_effects_domain_seq"),
    # Partial on a column that never changes: a state change stays heap-only, and an effect without a branch has no entry.
    Index("ix_effects_branch", "namespace", "branch_key", postgresql_where=text("branch_key IS NOT NULL")),
    comment="Effects: one row per admitted attempt of an intent",
    postgresql_with=_storage(fillfactor=50),
)

edges = Table(
    "edges",
    metadata,
    _namespace(),
    _column("intent_key", LargeBinary, "The effect that observed"),
    _column("attempt", Integer, "Its attempt"),
    _column("observed_key", LargeBinary, "The effect that was observed"),
    _column("observed_attempt", Integer, "Its attempt: an edge names an attempt, not an intent"),
    _column("via", Text, "How it was observed: read_set, observes or parent"),
    PrimaryKeyConstraint("namespace", "intent_key", "attempt", "observed_key", "observed_attempt"),
    ForeignKeyConstraint(
        ["namespace", "intent_key", "attempt"],
        ["effectfence.effects.namespace", "effectfence.effects.intent_key", "effectfence.effects.attempt"],
        name="fk_edges_effects",
    ),
    ForeignKeyConstraint(
        ["namespace", "observed_key", "observed_attempt"],
        ["effectfence.effects.namespace", "effectfence.effects.intent_key", "effectfence.effects.attempt"],
        name="fk_edges_observed",
    ),
    CheckConstraint("via IN ('read_set', 'observes', 'parent')", name="via"),
    CheckConstraint("intent_key <> observed_key OR attempt <> observed_attempt", name="not_itself"),
    Index("ix_edges_observed", "namespace", "observed_key", "observed_attempt"),
    comment="Dependency edges: one effect observed another",
    postgresql_with=_storage(),
)

certificates = Table(
    "certificates",
    metadata,
    _namespace(),
    _column("hash", CODE, "Lower hex SHA-256 of body: the certificate's address"),
    _column("intent_key", LargeBinary, "SHA-256 of the intent; at most one certificate for each"),
    _column("attempt", Integer, "The attempt that was committed"),
    _column("parent", CODE, "Hash of the parent certificate", null=True),
    _column("body", LargeBinary, "The exact bytes that were hashed"),
    _column("minted_at", DateTime(timezone=True), "Database time"),
    _column("reconciled_over", JSONB, "Blockers and operator, when minted over a dead closure", null=True),
    _column("args_digest", LargeBinary, "The effect's, so that a replay reads this row only"),
    _column("identity_digest", LargeBinary, "The effect's, likewise"),
    _column("identity_fields", ARRAY(Text), "The effect's, likewise", null=True),
    PrimaryKeyConstraint("namespace", "hash"),
    UniqueConstraint("namespace", "intent_key", name="uq_certificates_intent"),
    ForeignKeyConstraint(
        ["namespace", "parent"],
        ["effectfence.certificates.namespace", "effectfence.certificates.hash"],
        name="fk_certificates_parent",
    ),
    CheckConstraint("hash = encode(sha256(body), 'hex')", name="hash"),
    comment="Certificates: immutable, content-addressed records of committed effects; append-only",
    postgresql_with=_storage(),
)

transitions = Table(
    "transitions",
    metadata,
    _namespace(),
    _column("intent_key", LargeBinary, "The effect's intent"),
    _column("attempt", Integer, "The effect's attempt"),
    _column("version", BigInteger, "Version of the effect's row that this change made"),
    _column("from_state", Text, "State before; null for the admission", null=True),
    _column("to_state", Text, "State after; equal to from_state when only evidence was added"),
    _column("cause", Text, "What kind of event caused it"),
    _column("actor", Text, "Who caused it: an agent, an operator or the fence itself"),
    _column("at", DateTime(timezone=True), "Database time", default="clock_timestamp()"),
    _column("reason", Text, "The same in words", null=True),
    _column("evidence", Text, "What was reported or shown: a late result, an operator's evidence; JSON", null=True),
    _column("origin_key", LargeBinary, "Intent of the effect whose end cascaded to this one", null=True),
    _column("origin_attempt", Integer, "Its attempt", null=True),
    PrimaryKeyConstraint("namespace", "intent_key", "attempt", "version"),
    comment="Transitions: every change of every effect, with cause, actor and time; append-only",
    postgresql_with=_storage(),
)
