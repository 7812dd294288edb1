"""Late observation: an effect in flight observes more, through the read-set gate, or stays as it was."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.sql.completion import FOUND, FOUND_FACTS, TICKET
from effectfence_pg.sql.gates import GATES, clock
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement


@cache
def observe_late() -> TextClause:
    """Add entries and edges to an effect in flight; the clock joins what was observed and ticks."""
    return statement(
        GATES,
        FOUND,
        f"""
mine AS MATERIALIZED (
  SELECT found.* FROM found
  WHERE {TICKET.format(row="found")} AND found.state = 'in_flight' AND {SERIALIZABLE} AND (SELECT ok FROM passed)
)""",
        clock("coalesce((SELECT vector_clock FROM mine), '{}')"),
        """
updated AS (
  UPDATE effectfence.effects AS e
  SET vector_clock = clock.text, version = e.version + 1,
      read_set = CASE WHEN :read_set = '[]' THEN e.read_set WHEN e.read_set = '[]' THEN :read_set
                      ELSE left(e.read_set, -1) || ',' || substr(:read_set, 2) END,
      read_keys = e.read_keys || :read_keys, read_seqs = e.read_seqs || :read_seqs,
      observing = e.observing OR EXISTS (SELECT FROM observed)
  FROM mine, clock
  WHERE e.namespace = :namespace AND e.intent_key = mine.intent_key AND e.attempt = mine.attempt
  RETURNING e.vector_clock, e.observing, e.lease_expires_at
),
linked AS (
  INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
  SELECT DISTINCT ON (observed.intent_key, observed.attempt)
         :namespace, mine.intent_key, mine.attempt, observed.intent_key, observed.attempt, observed.via
  FROM mine, observed
  ORDER BY observed.intent_key, observed.attempt, observed.via
  ON CONFLICT DO NOTHING
)""",
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, updated.vector_clock, updated.observing, updated.lease_expires_at AS kept_until,
  gates.decided_branch, gates.unknown_parent, gates.moved, gates.unsettled, gates.unknown_intents, gates.unobservable,
  gates.target_state, gates.target_live, gates.target_current
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN updated ON true CROSS JOIN gates""",
    )
