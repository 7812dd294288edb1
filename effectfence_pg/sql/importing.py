"""How a ledger is stored: staged, compared with what is here, then every table in turn."""

from typing import Final

IMPORTED: Final = "imported"
"""The cause on record of what came from a ledger. None of the protocol's: no verb makes it."""

COLUMNS: Final = (
    "namespace",
    "hash",
    "intent",
    "attempt",
    "parent",
    "body",
    "minted_at",
    "reconciled_over",
    "domain",
    "seq",
    "tool",
    "args",
    "result",
    "vector_clock",
    "read_set",
    "agent",
    "args_digest",
    "identity_digest",
    "identity_fields",
    "observed",
)

STAGE: Final = """
CREATE TEMP TABLE incoming (
  namespace text COLLATE "C", hash text COLLATE "C", intent text, attempt integer, parent text COLLATE "C", body bytea,
  minted_at timestamptz, reconciled_over jsonb, domain text, seq bigint, tool text, args text, result text, vector_clock text,
  read_set text, agent text, args_digest bytea, identity_digest bytea, identity_fields text[], observed json,
  intent_key bytea, domain_key bytea, PRIMARY KEY (namespace, hash)
) ON COMMIT DROP"""

KNOWN: Final = """
WITH gone AS (
  DELETE FROM incoming n USING effectfence.certificates c WHERE c.namespace = n.namespace AND c.hash = n.hash
)
UPDATE incoming n SET intent_key = sha256(convert_to(n.intent, 'UTF8')), domain_key = sha256(convert_to(n.domain, 'UTF8'))
WHERE NOT EXISTS (SELECT FROM effectfence.certificates c WHERE c.namespace = n.namespace AND c.hash = n.hash)"""

_OBSERVED: Final = """
FROM incoming n
CROSS JOIN LATERAL json_array_elements(n.observed) AS seen (edge)
CROSS JOIN LATERAL (
  SELECT sha256(convert_to(seen.edge ->> 0, 'UTF8')) AS intent_key, CAST(seen.edge ->> 1 AS integer) AS attempt,
         seen.edge ->> 2 AS via) AS o"""

REFUSALS: Final = (
    (
        (
            "SELECT n.namespace, n.intent FROM incoming n JOIN effectfence.intents i "
            "ON i.namespace = n.namespace AND i.intent_key = n.intent_key LIMIT 1"
        ),
        "the intent is on record here, without this certificate",
    ),
    (
        (
            "SELECT n.namespace, n.intent FROM incoming n JOIN effectfence.effects e "
            "ON e.namespace = n.namespace AND e.domain_key = n.domain_key AND e.seq = n.seq LIMIT 1"
        ),
        "its number in the domain belongs to another effect",
    ),
    (
        (
            "SELECT n.namespace, n.intent FROM incoming n WHERE n.parent IS NOT NULL AND NOT EXISTS (SELECT FROM incoming p "
            "WHERE p.namespace = n.namespace AND p.hash = n.parent) AND NOT EXISTS (SELECT FROM effectfence.certificates p "
            "WHERE p.namespace = n.namespace AND p.hash = n.parent) LIMIT 1"
        ),
        "its parent is neither in the file nor here",
    ),
    (
        (
            f"SELECT n.namespace, n.intent {_OBSERVED} WHERE n.reconciled_over IS NULL AND NOT EXISTS (SELECT FROM incoming p "
            "WHERE p.namespace = n.namespace AND p.intent_key = o.intent_key AND p.attempt = o.attempt) "
            "AND NOT EXISTS (SELECT FROM effectfence.effects e WHERE e.namespace = n.namespace AND e.intent_key = o.intent_key "
            "AND e.attempt = o.attempt) LIMIT 1"
        ),
        "what it observed is neither in the file nor here",
    ),
)
"""Each finds one row that stands in the way, and says what is wrong with it."""

STORE: Final = (
    """
INSERT INTO effectfence.domains AS d (namespace, domain_key, domain, seq)
SELECT namespace, domain_key, min(domain), max(seq) FROM incoming GROUP BY namespace, domain_key ORDER BY 1, 2
ON CONFLICT (namespace, domain_key) DO UPDATE SET seq = greatest(d.seq, excluded.seq), last_operation = NULL""",
    """
INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
SELECT namespace, intent_key, intent, attempt, 1, minted_at FROM incoming ORDER BY 1, 2""",
    """
INSERT INTO effectfence.effects
  (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
   identity_digest, identity_fields, parent, vector_clock, read_set, read_keys, read_seqs, observing, on_stale,
   on_lease_expiry, took_over, lease_seconds, admitted_at, commit_asked, result)
SELECT n.namespace, n.intent_key, n.attempt, 'executed', 1, gen_random_uuid(), n.intent, n.domain_key, n.domain, n.seq,
       n.tool, n.agent, n.args, n.args_digest, n.identity_digest, n.identity_fields, n.parent, n.vector_clock, n.read_set,
       entries.read_keys, entries.read_seqs, false, 'fail', 'fence', false, 1, n.minted_at, true, n.result
FROM incoming n CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(sha256(convert_to(entry.value ->> 'domain', 'UTF8')) ORDER BY entry.position), '{}') AS read_keys,
         coalesce(array_agg(CAST(entry.value ->> 'seq' AS bigint) ORDER BY entry.position), '{}') AS read_seqs
  FROM json_array_elements(CAST(n.read_set AS json)) WITH ORDINALITY AS entry (value, position)) AS entries
ORDER BY n.namespace, n.intent_key""",
    f"""
INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
SELECT n.namespace, n.intent_key, n.attempt, o.intent_key, o.attempt, o.via {_OBSERVED}
JOIN effectfence.effects e ON e.namespace = n.namespace AND e.intent_key = o.intent_key AND e.attempt = o.attempt""",
    """
UPDATE effectfence.effects e SET state = 'committed', observing = EXISTS (
  SELECT FROM effectfence.edges g
  WHERE g.namespace = n.namespace AND g.intent_key = n.intent_key AND g.attempt = n.attempt)
FROM incoming n
WHERE e.namespace = n.namespace AND e.intent_key = n.intent_key AND e.attempt = n.attempt""",
    f"""
INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, to_state, cause, actor, at, reason)
SELECT namespace, intent_key, attempt, 1, 'committed', '{IMPORTED}', %(operator)s, minted_at,
       'imported at ' || clock_timestamp() FROM incoming""",
    """
INSERT INTO effectfence.certificates
  (namespace, hash, intent_key, attempt, parent, body, minted_at, args_digest, identity_digest, identity_fields,
   reconciled_over)
SELECT namespace, hash, intent_key, attempt, parent, body, minted_at, args_digest, identity_digest, identity_fields,
       reconciled_over FROM incoming""",
)
"""One statement a table; the certificates in one, because a parent may come after its child."""
