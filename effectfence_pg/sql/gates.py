"""Gates 2 to 4 of admission: parent, read set, domain.

Only requests that rest on something read them: every index page that is read is a page that another transaction's insert can
conflict with.
"""

from typing import Final

from effectfence_pg.protocol.states import SETTLED_FOR_GOOD, UNSETTLED
from effectfence_pg.sql.closures import BLOCKERS_SHOWN, listing
from effectfence_pg.sql.statements import states
from effectfence_pg.values.clocks import MAX_COUNT

SETTLED_EVERY: Final = 64
"""The watermark of a domain moves at every number divisible by this: one short index walk for that many admissions."""

UNDOES: Final = "(:undoes_key, :undoes_attempt)"

OBSERVED: Final = f"""
live AS (
  SELECT entry.domain_key, entry.seq, entry.position, coalesce(d.seq, 0) AS live_seq,
         coalesce(d.settled_seq, 0) AS settled_seq
  FROM unnest(:read_keys, :read_seqs) WITH ORDINALITY AS entry (domain_key, seq, position)
  -- OFFSET 0 here and below: one index lookup for each row, whatever the statistics say of a young table. A join may scan the
  -- whole namespace, and so conflict with everybody.
  LEFT JOIN LATERAL (
    SELECT d.seq, d.settled_seq FROM effectfence.domains d
    WHERE d.namespace = :namespace AND d.domain_key = entry.domain_key OFFSET 0) AS d ON true
),
open_effects AS (
  SELECT e.intent_key, e.attempt, e.intent, e.state, e.vector_clock, live.position
  FROM live
  CROSS JOIN LATERAL (
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.domain_key = live.domain_key AND e.seq > live.settled_seq
    ORDER BY e.seq OFFSET 0) AS e
  WHERE e.state IN ({states(UNSETTLED)}, 'executed') AND e.intent_key <> :intent_key
    -- A compensation undoes by meaning: what its target unsettles is what it is there for.
    AND ((e.intent_key, e.attempt) = {UNDOES}) IS NOT TRUE
),
named AS (
  SELECT asked.intent_key AS asked_key, e.intent_key, e.attempt, e.intent, e.state, e.vector_clock
  FROM unnest(:observed_keys) AS asked (intent_key)
  LEFT JOIN LATERAL (
    SELECT i.attempt FROM effectfence.intents i
    WHERE i.namespace = :namespace AND i.intent_key = asked.intent_key OFFSET 0) AS i ON true
  LEFT JOIN LATERAL (
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = asked.intent_key AND e.attempt = i.attempt OFFSET 0) AS e ON true
),
ancestor AS (
  SELECT e.intent_key, e.attempt, e.vector_clock
  FROM effectfence.certificates c
  JOIN effectfence.effects e ON e.namespace = c.namespace AND e.intent_key = c.intent_key AND e.attempt = c.attempt
  WHERE c.namespace = :namespace AND c.hash = :parent
),
observed AS (
  SELECT intent_key, attempt, vector_clock, 'read_set' AS via FROM open_effects WHERE state = 'executed'
  UNION ALL
  SELECT newest.intent_key, newest.attempt, newest.vector_clock, 'read_set'
  FROM live
  CROSS JOIN LATERAL (
    SELECT e.intent_key, e.attempt, e.vector_clock FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.domain_key = live.domain_key AND e.state = 'committed'
    ORDER BY e.seq DESC LIMIT 1) AS newest
  UNION ALL
  SELECT intent_key, attempt, vector_clock, 'observes' FROM named WHERE state IN ('executed', 'committed')
  UNION ALL
  SELECT intent_key, attempt, vector_clock, 'parent' FROM ancestor
)"""
"""What the request rests on, and everything that gets an edge."""

GATES: Final = f"""
{OBSERVED},
target AS (
  SELECT t.state, coalesce(t.lease_expires_at > clock_timestamp(), false) AS lease_live, i.attempt = t.attempt AS is_current
  FROM effectfence.effects t
  JOIN effectfence.intents i ON i.namespace = t.namespace AND i.intent_key = t.intent_key
  WHERE t.namespace = :namespace AND t.intent_key = :undoes_key AND t.attempt = :undoes_attempt
),
plan AS (
  SELECT b.state FROM effectfence.branches b
  WHERE CAST(:branch_key AS bytea) IS NOT NULL AND b.namespace = :namespace AND b.branch_key = :branch_key
),
gates AS MATERIALIZED (
  SELECT
    (SELECT state FROM plan WHERE state <> 'open') AS decided_branch,
    :parent IS NOT NULL AND NOT EXISTS (SELECT FROM ancestor) AS unknown_parent,
    (SELECT coalesce(json_agg(json_build_array(position, live_seq) ORDER BY position), CAST('[]' AS json))
     FROM live WHERE seq <> live_seq) AS moved,
    (SELECT coalesce(json_agg(json_build_array(shown.position, shown.intent, shown.attempt, shown.state)), CAST('[]' AS json))
     FROM (SELECT position, intent, attempt, state FROM open_effects WHERE state IN ({states(UNSETTLED)})
           ORDER BY position, intent LIMIT {BLOCKERS_SHOWN}) AS shown) AS unsettled,
    (SELECT coalesce(json_agg(encode(asked_key, 'hex')), CAST('[]' AS json)) FROM named WHERE intent_key IS NULL)
      AS unknown_intents,
    {listing("named", "state NOT IN ('executed', 'committed')")} AS unobservable,
    (SELECT state FROM target) AS target_state, (SELECT lease_live FROM target) AS target_live,
    (SELECT is_current FROM target) AS target_current
),
passed AS MATERIALIZED (
  SELECT decided_branch IS NULL AND NOT unknown_parent AND NOT :doubted
     AND json_array_length(moved) = 0 AND json_array_length(unsettled) = 0
     AND (:undoes_key IS NULL OR coalesce(target_current AND target_state IN ('failed', 'aborted') AND NOT target_live, false))
     AND json_array_length(unknown_intents) = 0 AND json_array_length(unobservable) = 0 AS ok
  FROM gates
)"""
"""One row of facts and one row that says whether the request may go on."""


def clock(known: str) -> str:
    """`known` joined with the clocks of everything observed, ticked for the agent, as canonical JSON."""
    return f"""
clock AS MATERIALIZED (
  -- json_each_text and to_json keep every byte of a key; COLLATE "C" sorts by code point in a UTF8 database.
  SELECT '{{' || string_agg(CAST(to_json(ticked.key) AS text) || ':' || ticked.count, ','
                           ORDER BY ticked.key COLLATE "C") || '}}' AS text
  FROM (
    -- A count that others drove to its limit stays there: it must not keep the agent from acting.
    SELECT joined.key, least(max(joined.count) + CASE WHEN joined.key = :agent THEN 1 ELSE 0 END, {MAX_COUNT}) AS count
    FROM (
      SELECT known.key, CAST(known.value AS numeric) AS count
      FROM json_each_text(CAST({known} AS json)) AS known (key, value)
      UNION ALL
      SELECT seen.key, CAST(seen.value AS numeric)
      FROM observed CROSS JOIN LATERAL json_each_text(CAST(observed.vector_clock AS json)) AS seen (key, value)
      UNION ALL
      SELECT CAST(:agent AS text), 0
    ) AS joined
    GROUP BY joined.key
  ) AS ticked
)"""


SETTLED_BEFORE: Final = f"""
  SELECT e.seq - 1 FROM effectfence.effects e
  WHERE e.namespace = $1 AND e.domain_key = $2 AND e.seq > $3 AND e.state NOT IN ({states(SETTLED_FOR_GOOD)})
  ORDER BY e.seq LIMIT 1"""
"""The number below the first effect of a domain that is not settled for good: of namespace, domain key, where to begin."""

SETTLED_WATERMARK: Final = f"""
CASE WHEN (d.seq + 1) % {SETTLED_EVERY} = 0
     THEN coalesce(effectfence.settled_before(d.namespace, d.domain_key, d.settled_seq), d.seq)
     ELSE d.settled_seq END"""
"""Where the watermark goes when the domain gives a number. A function, because what a statement holds is prepared for running
at every call, also where it runs at one of sixty-four."""
