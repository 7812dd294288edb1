"""What auditors and operators ask, as the driver takes it. Reads of views and keys; none of it is part of a verb."""

from typing import Final

from effectfence_pg.sql.certificate_audit import CHECKS
from effectfence_pg.sql.roles_ddl import ROLES, TABLES

QUIET: Final = """SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('jit', 'off', true)"""
"""For reads by index: of a large table a scan looks cheaper than two indexes of keys, and is not while others work."""

_HOLDS: Final = " AND ".join(CHECKS.values())
_WITHIN: Final = """(%(namespace)s::text IS NULL OR namespace = %(namespace)s)
  AND (%(since)s::timestamptz IS NULL OR minted_at >= %(since)s)"""

COUNT_CERTIFICATES: Final = f"SELECT count(*) FROM effectfence.certificate_ledger WHERE {_WITHIN}"

AUDIT: Final = f"""
SELECT count(*) AS certificates, count(*) FILTER (WHERE NOT ({_HOLDS})) AS wrong
FROM effectfence.certificate_audit WHERE {_WITHIN}"""

MISMATCHES: Final = f"""
SELECT namespace, hash, intent, {", ".join(CHECKS.values())}
FROM effectfence.certificate_audit WHERE NOT ({_HOLDS}) AND {_WITHIN} ORDER BY namespace, hash LIMIT %(limit)s"""

MISSING: Final = """
SELECT namespace, intent, attempt FROM effectfence.missing_certificates
WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s) ORDER BY 1, 2 LIMIT %(limit)s"""

USED: Final = """
SELECT EXISTS (SELECT FROM effectfence.certificate_ledger WHERE namespace = %(namespace)s)
  OR EXISTS (SELECT FROM effectfence.domain_history WHERE namespace = %(namespace)s) AS used"""
"""Whether anything was ever admitted under a name."""

LEDGER: Final = f"""
SELECT namespace, hash, body, minted_at, attempt, reconciled_over, intent, effect_parent, domain, seq, tool, args, result,
       vector_clock, read_set, agent, identity_fields, args_digest, identity_digest, parent
FROM effectfence.certificate_ledger WHERE {_WITHIN} ORDER BY namespace, hash"""

LEDGER_WITH_EDGES: Final = LEDGER.replace("parent\nFROM", "parent, observed\nFROM")
"""For a comparison with an export, which names what every certificate observed."""

EXPORT: Final = f"""
SELECT namespace, hash, body, minted_at, attempt, reconciled_over, identity_fields, observed
FROM effectfence.certificate_ledger WHERE {_WITHIN} ORDER BY namespace, hash"""

FIND_CERTIFICATE: Final = """
SELECT hash FROM effectfence.certificate_ledger
WHERE namespace = %(namespace)s AND hash = %(name)s
UNION ALL
SELECT hash FROM effectfence.certificate_ledger
WHERE namespace = %(namespace)s AND intent_key = %(intent_key)s LIMIT 1"""

WALK: Final = """
SELECT * FROM effectfence.{function}(%(namespace)s, %(hash)s) WHERE depth <= %(depth)s
ORDER BY depth, intent COLLATE "C", attempt"""

OBSERVED: Final = """
SELECT intent, attempt, observed FROM effectfence.certificate_ledger
WHERE namespace = %(namespace)s AND hash = ANY (%(hashes)s)"""

UNRESOLVED: Final = """
SELECT namespace, intent, attempt, state, domain, seq, tool, holder, admitted_at, extract(epoch FROM age) AS age_seconds,
       last_renewal, lease_expires_at, lease_live, failure, reason, branch, has_result, unsettles_domain, blocks
FROM effectfence.unresolved
WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
ORDER BY admitted_at LIMIT %(limit)s"""

UNRESOLVED_COUNT: Final = """
SELECT count(*) FROM effectfence.unresolved WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)"""

BLOCKED: Final = """
SELECT o.intent FROM effectfence.edges g
CROSS JOIN LATERAL (
  SELECT * FROM effectfence.effects o
  WHERE o.namespace = g.namespace AND o.intent_key = g.intent_key AND o.attempt = g.attempt OFFSET 0) AS o
WHERE g.namespace = %(namespace)s AND g.observed_key = %(intent_key)s AND g.observed_attempt = %(attempt)s
  AND o.state IN ('in_flight', 'executed', 'failed', 'aborted')
ORDER BY o.intent LIMIT 100"""

_SHOWN: Final = (
    """e.intent, e.attempt, e.state, e.domain, e.seq, e.tool, e.agent, e.admitted_at, e.lease_expires_at, e.reason"""
)

LIST_INTENTS: Final = f"""
SELECT {_SHOWN}
FROM effectfence.intents i
CROSS JOIN LATERAL (
  SELECT * FROM effectfence.effects e
  WHERE e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt OFFSET 0) AS e
WHERE i.namespace = %(namespace)s AND i.intent_key > %(after)s
  AND (%(states)s::text[] IS NULL OR e.state = ANY (%(states)s)) AND (%(agent)s::text IS NULL OR e.agent = %(agent)s)
ORDER BY i.namespace, i.intent_key LIMIT %(limit)s"""
"""Pages by key: no index holds a state, because a change of state must stay a heap-only update."""

LIST_DOMAIN: Final = f"""
SELECT {_SHOWN} FROM effectfence.effects e
WHERE e.namespace = %(namespace)s AND e.domain_key = %(domain_key)s AND e.seq < %(before)s
  AND (%(states)s::text[] IS NULL OR e.state = ANY (%(states)s)) AND (%(agent)s::text IS NULL OR e.agent = %(agent)s)
ORDER BY e.domain_key, e.seq DESC LIMIT %(limit)s"""

HISTORY: Final = """
SELECT attempt, version, from_state, to_state, cause, actor, at, reason, evidence FROM effectfence.transitions
WHERE namespace = %(namespace)s AND intent_key = %(intent_key)s ORDER BY attempt, version"""

ATTEMPTS: Final = """
SELECT attempt, state, domain, seq, tool, agent, started_at, completed_at, causes, actors, late_evidence, reason, has_result,
       certificate
FROM effectfence.attempts WHERE namespace = %(namespace)s AND intent_key = %(intent_key)s ORDER BY attempt"""

STATES: Final = """
SELECT state, count(*) FROM effectfence.effects
WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s) GROUP BY 1 ORDER BY 1"""

CAUSES: Final = """
SELECT cause, count(*) FROM effectfence.transitions
WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s) GROUP BY 1 ORDER BY 1"""

TOTALS: Final = """
SELECT (SELECT count(*) FROM effectfence.intents WHERE %(namespace)s::text IS NULL OR namespace = %(namespace)s) AS intents,
       (SELECT count(*) FROM effectfence.certificates WHERE %(namespace)s::text IS NULL OR namespace = %(namespace)s)
         AS certificates,
       (SELECT count(*) FROM effectfence.domains WHERE %(namespace)s::text IS NULL OR namespace = %(namespace)s) AS domains"""

SERVER: Final = """
SELECT current_setting('server_version') AS version, current_setting('default_transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
       pg_is_in_recovery() AS in_recovery, (SELECT count(*) FROM pg_stat_replication) AS standbys,
       current_setting('max_pred_locks_per_transaction')::int AS predicate_locks,
       extract(epoch FROM clock_timestamp())::float8 AS now"""

HOT_DOMAINS: Final = """
SELECT d.namespace, d.domain, d.seq, sample.numbers, sample.numbers / greatest(sample.seconds, 0.001) AS per_second
FROM (SELECT namespace, domain_key, domain, seq FROM effectfence.domains ORDER BY seq DESC LIMIT %(limit)s) AS d
CROSS JOIN LATERAL (
  SELECT (max(e.seq) - min(e.seq))::float8 AS numbers,
         extract(epoch FROM max(e.admitted_at) - min(e.admitted_at))::float8 AS seconds,
         max(e.admitted_at) AS newest
  FROM (SELECT e.seq, e.admitted_at FROM effectfence.effects e
        WHERE e.namespace = d.namespace AND e.domain_key = d.domain_key ORDER BY e.seq DESC LIMIT %(sample)s) AS e) AS sample
WHERE sample.numbers > 0 AND sample.newest > clock_timestamp() - interval '1 hour' ORDER BY per_second DESC"""

BLOAT: Final = """
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead, n_tup_upd AS updates, n_tup_hot_upd AS hot_updates
FROM pg_stat_user_tables WHERE schemaname = 'effectfence' ORDER BY relname"""

LEASES: Final = """
SELECT count(*) FILTER (WHERE lease_expires_at <= clock_timestamp()) AS expired,
       count(*) FILTER (WHERE lease_expires_at > clock_timestamp()
                          AND lease_expires_at <= clock_timestamp() + %(soon)s * interval '1 second') AS soon,
       count(*) FILTER (WHERE state = 'failed') AS failed, count(*) AS unresolved,
       coalesce(extract(epoch FROM max(age)), 0)::float8 AS oldest_seconds
FROM effectfence.unresolved"""

LONG_TRANSACTIONS: Final = """
SELECT pid, coalesce(application_name, '') AS application, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - %(seconds)s * interval '1 second' AND pid <> pg_backend_pid() AND datname IS NOT NULL
ORDER BY xact_start LIMIT 10"""

GRANTS: Final = f"""
SELECT role.name, to_regrole(role.name) IS NOT NULL AS known,
  CASE WHEN to_regrole(role.name) IS NULL THEN false
       WHEN role.name = 'effectfence_auditor' THEN has_table_privilege(role.name, 'effectfence.certificate_audit', 'SELECT')
       ELSE (SELECT bool_and(has_table_privilege(role.name, 'effectfence.' || t.name, 'SELECT, INSERT')
                             AND has_schema_privilege(role.name, 'effectfence', 'USAGE'))
             FROM unnest(ARRAY[{", ".join(f"'{table}'" for table in TABLES)}]) AS t (name)) END AS granted
FROM unnest(ARRAY[{", ".join(f"'{role}'" for role in ROLES)}]) AS role (name)"""
