"""Late observation: an effect in flight observes more, through the read-set gate, or stays as it was."""

from functools import cache

from sqlalchemy import TextClause

from effectfence_pg.sql.gates import GATES, UNDOES, clock
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement
from effectfence_pg.sql.tickets import FOUND, FOUND_FACTS, TICKET


@cache
def observe_late() -> TextClause:
    """Add entries and edges to an effect in flight; the clock joins what was observed and ticks.

    The stored row says what is new, and not the ticket: an older one, or a call whose answer was lost, adds nothing twice.
    """
    return statement(
        # A ticket does not say what its effect undoes; the row does.
        GATES.replace(f"= {UNDOES}", "= (SELECT undoes_key, undoes_attempt FROM found)"),
        FOUND,
        f"""
reread AS MATERIALIZED (
  SELECT new.position, new.domain_key, new.seq, known.seq AS known_seq
  FROM unnest(:read_keys, :read_seqs) WITH ORDINALITY AS new (domain_key, seq, position)
  CROSS JOIN found
  LEFT JOIN LATERAL (
    SELECT entry.seq FROM unnest(found.read_keys, found.read_seqs) AS entry (domain_key, seq)
    WHERE entry.domain_key = new.domain_key) AS known ON true
),
added AS MATERIALIZED (
  SELECT coalesce(array_agg(reread.domain_key ORDER BY reread.position), '{{}}') AS read_keys,
         coalesce(array_agg(reread.seq ORDER BY reread.position), '{{}}') AS read_seqs,
         string_agg(CAST(entry.text AS text), ',' ORDER BY reread.position) AS entries
  FROM reread
  JOIN json_array_elements(CAST(:read_set AS json)) WITH ORDINALITY AS entry (text, position)
    ON entry.position = reread.position
  WHERE reread.known_seq IS NULL
),
mine AS MATERIALIZED (
  SELECT found.* FROM found
  WHERE {TICKET.format(row="found")} AND found.state = 'in_flight' AND {SERIALIZABLE} AND (SELECT ok FROM passed)
    AND found.last_operation IS DISTINCT FROM :operation
    AND NOT EXISTS (SELECT FROM reread WHERE known_seq <> seq)
)""",
        clock("coalesce((SELECT vector_clock FROM mine), '{}')"),
        """
updated AS (
  UPDATE effectfence.effects AS e
  SET vector_clock = clock.text, version = e.version + 1, last_operation = :operation,
      read_set = CASE WHEN added.entries IS NULL THEN e.read_set
                      WHEN e.read_set = '[]' THEN '[' || added.entries || ']'
                      ELSE left(e.read_set, -1) || ',' || added.entries || ']' END,
      read_keys = e.read_keys || added.read_keys, read_seqs = e.read_seqs || added.read_seqs,
      observing = e.observing OR EXISTS (SELECT FROM observed)
  FROM mine, clock, added
  WHERE e.namespace = :namespace AND e.intent_key = mine.intent_key AND e.attempt = mine.attempt
  RETURNING e.vector_clock, e.read_set, e.observing
),
linked AS (
  INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
  SELECT DISTINCT ON (observed.intent_key, observed.attempt)
         :namespace, mine.intent_key, mine.attempt, observed.intent_key, observed.attempt, observed.via
  FROM mine, observed
  ORDER BY observed.intent_key, observed.attempt, observed.via
  ON CONFLICT DO NOTHING
),
seen AS (
  SELECT vector_clock, read_set, observing FROM updated
  UNION ALL
  SELECT vector_clock, read_set, observing FROM found WHERE last_operation = :operation AND state = 'in_flight'
)""",
        verdict=f"""
SELECT {ISOLATION}, {FOUND_FACTS}, seen.vector_clock, seen.observing, seen.read_set AS seen_read_set,
  (SELECT coalesce(json_agg(json_build_array(position, known_seq) ORDER BY position), CAST('[]' AS json))
   FROM reread WHERE known_seq <> seq) AS reread,
  gates.decided_branch, gates.unknown_parent, gates.moved, gates.unsettled, gates.unknown_intents, gates.unobservable,
  gates.target_state, gates.target_live, gates.target_current
FROM (SELECT 1) AS one LEFT JOIN found ON true LEFT JOIN seen ON true CROSS JOIN gates""",
    )
