"""prepare: one statement that passes the gates in order and admits, replays or refuses."""

from functools import cache
from typing import Final

from sqlalchemy import TextClause

from effectfence_pg.sql.closures import ADVANCE, CASCADE
from effectfence_pg.sql.gates import GATES, SETTLED_WATERMARK, clock
from effectfence_pg.sql.statements import CERTIFIED, CURRENT, ISOLATION, SERIALIZABLE, micros, statement
from effectfence_pg.sql.tickets import UNDOING

_CLAIM: Final = """
admitted AS (
  -- The probe of ON CONFLICT takes no predicate lock; a rival that is not committed yet is waited for.
  INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at{columns})
  SELECT :namespace, :intent_key, :intent, 1, 1, clock_timestamp(){values} WHERE {condition}
  ON CONFLICT DO NOTHING
  RETURNING attempt
)"""

PRIOR: Final = f"""
  SELECT e.attempt, e.state, e.token, e.seq, e.agent, e.domain, e.tool, e.args_digest, e.identity_digest, e.identity_fields,
         e.vector_clock, e.observing, e.admitted_at, {micros("e.lease_expires_at")} AS lease_micros, e.on_lease_expiry,
         e.failure, e.reason, e.result IS NOT NULL AS has_result, e.lease_expires_at > clock_timestamp() AS lease_live,
         greatest(extract(epoch FROM e.lease_expires_at - clock_timestamp()), 0) AS lease_left_seconds,
         c.hash, c.body, c.minted_micros, c.reconciled_over
  FROM {CURRENT}{CERTIFIED}
  WHERE i.namespace = {{namespace}} AND i.intent_key = {{intent_key}}"""
"""What is on record of an intent."""

_PRIOR: Final = """
prior AS (
  SELECT r.* FROM effectfence.on_record(:namespace, :intent_key) AS r WHERE NOT EXISTS (SELECT FROM admitted)
)"""
"""The same, asked only where the claim came back empty. A function, because what a statement holds is prepared for running at
every call, also where it does not run; the join of three tables took a tenth of the server's time of an admission."""

_RESERVED: Final = f"""
reserved AS (
  INSERT INTO effectfence.domains AS d (namespace, domain_key, domain, seq)
  SELECT :namespace, :domain_key, :domain, 1 FROM admitted
  ON CONFLICT (namespace, domain_key) DO UPDATE
    SET seq = d.seq + 1, settled_seq = {SETTLED_WATERMARK}, last_operation = NULL
  RETURNING seq
)"""

_EFFECT: Final = """
effect AS (
  -- The lease starts after every lock wait: this row is made from what the waits returned.
  INSERT INTO effectfence.effects
    (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
     identity_digest, identity_fields, vector_clock, read_set, read_keys, read_seqs, observing, on_stale,
     on_lease_expiry, took_over, lease_seconds, lease_expires_at, admitted_at, commit_asked{extra_columns})
  SELECT :namespace, :intent_key, admitted.attempt, 'in_flight', 1, :token, :intent, :domain_key, :domain, reserved.seq,
         :tool, :agent, :args, :args_digest, :identity_digest, :identity_fields, {clock}, {read_set}, {observing}, :on_stale,
         :on_lease_expiry, {took_over}, :lease_seconds, clock_timestamp() + :lease_seconds * interval '1 second',
         clock_timestamp(), false{extra_values}
  FROM admitted, reserved
  RETURNING attempt, seq, vector_clock, observing, lease_expires_at
),
logged AS (
  INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, to_state, cause, actor)
  SELECT :namespace, :intent_key, attempt, 1, 'in_flight', 'admitted', :agent FROM effect
)"""

_NO_READ_SET: Final = "'[]', '{}', '{}'"
_PLAN_COLUMNS: Final = ", parent, branch_key, branch, compensation, undoes_key, undoes_attempt"
_PLAN_VALUES: Final = ", :parent, :branch_key, :branch, :compensation, :undoes_key, :undoes_attempt"
_UNDOES_COLUMNS: Final = ", undoes_key, undoes_attempt"
_UNDOES_VALUES: Final = ", :undoes_key, :undoes_attempt"

_EDGES: Final = """
opened AS (
  INSERT INTO effectfence.branches (namespace, branch_key, branch, state, version, opened_at)
  SELECT :namespace, :branch_key, :branch, 'open', 1, clock_timestamp() FROM effect WHERE :branch_key IS NOT NULL
  ON CONFLICT DO NOTHING
),
linked AS (
  INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
  SELECT DISTINCT ON (observed.intent_key, observed.attempt)
         :namespace, :intent_key, effect.attempt, observed.intent_key, observed.attempt, observed.via
  FROM effect, observed
  ORDER BY observed.intent_key, observed.attempt, observed.via
)"""


def _resting(*, took_over: str) -> str:
    """The effect of a request that rests on something, with what belongs to a plan."""
    return _EFFECT.format(
        clock="(SELECT text FROM clock)",
        read_set=":read_set, :read_keys, :read_seqs",
        observing="EXISTS (SELECT FROM observed)",
        took_over=took_over,
        extra_columns=_PLAN_COLUMNS,
        extra_values=_PLAN_VALUES,
    )


_PLAIN_FRESH: Final = f"effect.seq AS fresh_seq, {micros('effect.lease_expires_at')} AS fresh_lease_micros"
_FRESH: Final = f"""{_PLAIN_FRESH}, effect.attempt AS fresh_attempt, effect.vector_clock AS fresh_clock,
  effect.observing AS fresh_observing"""

_GATE_FACTS: Final = """gates.decided_branch, gates.unknown_parent, gates.moved, gates.unsettled, gates.unknown_intents,
  gates.unobservable, gates.target_state, gates.target_live, gates.target_current"""


@cache
def look() -> TextClause:
    """What is on record of an intent: a plain read, at less than half the cost of a claim that comes back empty."""
    return statement(verdict=PRIOR.format(namespace=":namespace", intent_key=":intent_key"))


@cache
def sealed() -> TextClause:
    """The certificate of an intent, and what tells whether another request is the same action."""
    return statement(
        verdict=f"""
SELECT c.attempt, c.hash, c.body, {micros("c.minted_at")} AS minted_micros, c.reconciled_over, c.args_digest, c.identity_digest,
       c.identity_fields
FROM effectfence.certificates c
WHERE c.namespace = :namespace AND c.intent_key = :intent_key"""
    )


@cache
def prepare(*, rests: bool) -> TextClause:
    """Two shapes: a request that rests on nothing must not read a domain or an edge.

    `prior` is read only when the claim came back empty: on the fresh path its scan never runs.
    """
    return statement(
        *((GATES, clock(":known_clock")) if rests else ()),
        _CLAIM.format(
            condition=f"{SERIALIZABLE} AND (SELECT ok FROM passed)" if rests else SERIALIZABLE,
            columns=_UNDOES_COLUMNS if rests else "",
            values=_UNDOES_VALUES if rests else "",
        ),
        _PRIOR,
        _RESERVED,
        _resting(took_over="false")
        if rests
        else _EFFECT.format(
            clock=":vector_clock",
            read_set=_NO_READ_SET,
            observing="false",
            took_over="false",
            extra_columns="",
            extra_values="",
        ),
        *((_EDGES,) if rests else ()),
        verdict=f"""
SELECT {ISOLATION}, {_FRESH if rests else _PLAIN_FRESH}, prior.*{", " + _GATE_FACTS if rests else ""}
FROM (SELECT 1) AS one LEFT JOIN effect ON true LEFT JOIN prior ON true{" CROSS JOIN gates" if rests else ""}""",
    )


_REOPENED: Final = """
reopened AS (
  UPDATE effectfence.intents AS i SET attempt = i.attempt + 1, version = i.version + 1
  FROM {source}
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key AND i.version = {source}.intent_version
  RETURNING i.attempt
),
admitted AS (SELECT attempt FROM reopened)"""


@cache
def reopen() -> TextClause:
    """The admission of a new attempt of an intent whose last one is released: a compare-and-set on the intent's version."""
    return statement(
        GATES,
        clock(":known_clock"),
        f"""
closed AS MATERIALIZED (
  SELECT i.version AS intent_version
  FROM effectfence.intents i
  JOIN effectfence.effects e ON e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt
  WHERE i.namespace = :namespace AND i.intent_key = :intent_key AND i.attempt = :attempt AND e.state = 'released'
    AND (SELECT ok FROM passed) AND {SERIALIZABLE}
)""",
        _REOPENED.format(source="closed"),
        _RESERVED,
        _resting(took_over="false"),
        _EDGES,
        verdict=_replaced("CAST(NULL AS text)"),
    )


def _replaced(undoing: str) -> str:
    return f"""
SELECT {ISOLATION}, {_FRESH}, {_GATE_FACTS}, {undoing} AS undoing, EXISTS (
    SELECT FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = :intent_key AND e.token = :token) AS admitted_before
FROM (SELECT 1) AS one LEFT JOIN effect ON true CROSS JOIN gates"""


@cache
def takeover() -> TextClause:
    """The same admission over an attempt whose lease ran out: it is superseded only if the gates pass."""
    return statement(
        GATES,
        clock(":known_clock"),
        f"""
target_of AS MATERIALIZED (
  SELECT {UNDOING.format(row="e")} FROM effectfence.effects e
  WHERE e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = :attempt
),
old AS (
  UPDATE effectfence.effects AS e
  SET state = 'superseded', version = e.version + 1, lease_expires_at = NULL, failure = 'takeover',
      reason = 'its lease ran out and another attempt took over', last_operation = :token
  FROM effectfence.effects before
  JOIN effectfence.intents i
    ON i.namespace = before.namespace AND i.intent_key = before.intent_key AND i.attempt = before.attempt
  WHERE e.namespace = :namespace AND e.intent_key = :intent_key AND e.attempt = :attempt
    AND before.namespace = e.namespace AND before.intent_key = e.intent_key AND before.attempt = e.attempt
    AND ((before.state = 'in_flight' AND before.lease_expires_at <= clock_timestamp())
         OR (before.state = 'failed' AND before.failure = 'lease_expired' AND before.result IS NULL))
    AND (SELECT ok FROM passed) AND (SELECT undoing IS NULL FROM target_of) AND {SERIALIZABLE}
  RETURNING e.intent_key, e.attempt, e.domain_key, e.version, before.state AS from_state, i.version AS intent_version
),
ended AS (
  -- One number for the exit and one for the new attempt: both are of this domain, because the action is the same.
  SELECT intent_key, attempt, domain_key, 2 AS numbers, CAST(NULL AS bigint) AS refenced_seq, true AS dead FROM old
),
logged_old AS (
  INSERT INTO effectfence.transitions
    (namespace, intent_key, attempt, version, from_state, to_state, cause, actor, reason)
  SELECT :namespace, intent_key, attempt, version, from_state, 'superseded', 'takeover', :actor,
         'its lease ran out and another attempt took over' FROM old
)""",
        _REOPENED.format(source="old"),
        CASCADE,
        ADVANCE,
        "reserved AS (SELECT seq FROM advanced WHERE domain_key = :domain_key)",
        _resting(took_over="true"),
        _EDGES,
        verdict=_replaced("(SELECT undoing FROM target_of)"),
    )
