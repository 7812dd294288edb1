"""Statistics before there are rows.

Plans are made before there is anything to plan for, and a prepared statement keeps its plan. Without statistics an index that
is used by the namespace alone looks as cheap as one used by its whole key, and such a plan reads the whole tenant and conflicts
with everybody. One row of each table, seen by ANALYZE and truncated in a later transaction than the one that made the table,
leaves the planner with what it has to know from the first statement on: keys are unique, a namespace selects nothing.
"""

from typing import Final

LOCK_KEY: Final = 0x0EFFEC7FE9CE
"""Concurrent first use: `CREATE ... IF NOT EXISTS` races, a transaction-level advisory lock does not."""

TABLES: Final = ("branches", "certificates", "domains", "edges", "effects", "intents", "transitions")

_EMPTY = " AND ".join(f"NOT EXISTS (SELECT FROM effectfence.{table})" for table in TABLES)
_ALL = ", ".join(f"effectfence.{table}" for table in TABLES)

FIRST_STATISTICS: Final = f"""
DO $$
BEGIN
  PERFORM pg_advisory_xact_lock({LOCK_KEY});
  SET LOCAL lock_timeout = '5s';
  IF to_regclass('effectfence.effects') IS NULL
     OR EXISTS (SELECT FROM pg_stats WHERE schemaname = 'effectfence' AND tablename = 'effects')
     -- An older revision: the one that follows leaves them.
     OR NOT EXISTS (
       SELECT FROM pg_attribute WHERE attrelid = to_regclass('effectfence.certificates') AND attname = 'args_digest')
     -- What row security hides, where it is forced on the owner, must not be taken for empty, and truncated.
     OR EXISTS (
       SELECT FROM pg_class
       WHERE relnamespace = to_regnamespace('effectfence') AND relkind = 'r' AND row_security_active(oid)) THEN
    RETURN;
  END IF;
  -- The owner has no right to truncate these, takes it for a moment and gives it back.
  GRANT TRUNCATE ON effectfence.certificates, effectfence.transitions TO CURRENT_USER;
  BEGIN
    LOCK TABLE {_ALL} IN ACCESS EXCLUSIVE MODE;
    IF {_EMPTY} THEN
      INSERT INTO effectfence.domains (namespace, domain_key, domain, seq) VALUES ('-', sha256('-'), '-', 1);
      INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
      VALUES ('-', sha256('-'), '-', 1, 1, now());
      INSERT INTO effectfence.branches (namespace, branch_key, branch, state, version, opened_at)
      VALUES ('-', sha256('-'), '-', 'open', 1, now());
      INSERT INTO effectfence.effects
        (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
         identity_digest, vector_clock, read_set, read_keys, read_seqs, observing, on_stale, on_lease_expiry, took_over,
         lease_seconds, admitted_at, commit_asked)
      SELECT '-', key, n, 'released', 1, gen_random_uuid(), '-', key, '-', n, '-', '-', '{{}}',
             sha256('-'), sha256('-'), '{{}}', '[]', '{{}}', '{{}}', false, 'fail', 'fence', false, 1, now(), false
      FROM (VALUES (sha256('-'), 1), (sha256('+'), 2)) AS other (key, n);
      INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
      VALUES ('-', sha256('+'), 2, sha256('-'), 1, 'parent');
      INSERT INTO effectfence.certificates (namespace, hash, intent_key, attempt, body, minted_at, args_digest, identity_digest)
      VALUES ('-', encode(sha256('-'), 'hex'), sha256('-'), 1, '-', now(), sha256('-'), sha256('-'));
      INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, to_state, cause, actor)
      VALUES ('-', sha256('-'), 1, 1, 'released', '-', '-');
      ANALYZE {_ALL};
      {" ".join(f"ALTER TABLE effectfence.{table} DISABLE TRIGGER keep_table;" for table in TABLES)}
      TRUNCATE {_ALL};
      {" ".join(f"ALTER TABLE effectfence.{table} ENABLE ALWAYS TRIGGER keep_table;" for table in TABLES)}
    END IF;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
  REVOKE TRUNCATE ON effectfence.certificates, effectfence.transitions FROM CURRENT_USER;
END
$$
"""
"""Does nothing when there are statistics, or rows, or no tables, or somebody is using them."""
