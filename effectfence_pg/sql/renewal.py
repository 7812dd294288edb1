"""Leases of many effects extended in one statement: what keeps the effects of a process alive while their tools run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from effectfence_pg.protocol.completion import lost
from effectfence_pg.protocol.verdicts import require_serializable
from effectfence_pg.sql.operation import Operation
from effectfence_pg.sql.statements import ISOLATION, SERIALIZABLE, statement
from effectfence_pg.values import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from effectfence_pg.errors import FenceError
    from effectfence_pg.values import PreparedEffect


@cache
def _renew_all() -> TextClause:
    """Extend every lease of the list that is still held.

    What a concurrent call has locked is being decided, and is passed over: one effect must not hold up the others.
    """
    return statement(
        f"""
given AS MATERIALIZED (
  SELECT * FROM unnest(:keys, :attempts, :tokens) WITH ORDINALITY AS given (intent_key, attempt, token, position)
),
held AS MATERIALIZED (
  -- Locked before the clock is read, in one order.
  SELECT e.row FROM (SELECT * FROM given ORDER BY intent_key, attempt) AS due
  CROSS JOIN LATERAL (
    SELECT e.ctid AS row FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = due.intent_key AND e.attempt = due.attempt
      AND e.token = due.token AND e.state = 'in_flight' AND {SERIALIZABLE}
    OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS e
),
updated AS (
  UPDATE effectfence.effects AS e
  SET lease_expires_at = greatest(e.lease_expires_at, clock_timestamp() + e.lease_seconds * interval '1 second'),
      renewed_at = clock_timestamp(), version = e.version + 1
  FROM held WHERE e.ctid = held.row
),
gone AS MATERIALIZED (
  SELECT given.position, e.state, e.reason FROM given
  CROSS JOIN LATERAL (
    SELECT e.state, e.reason FROM effectfence.effects e
    WHERE e.namespace = :namespace AND e.intent_key = given.intent_key AND e.attempt = given.attempt
      AND e.token = given.token AND e.state <> 'in_flight'
    OFFSET 0) AS e
)""",
        verdict=f"""
SELECT {ISOLATION},
  coalesce((SELECT json_agg(json_build_array(position, state, reason)) FROM gone), CAST('[]' AS json)) AS gone""",
    )


def renew_all(namespace: str, tickets: Sequence[PreparedEffect]) -> Operation[dict[int, FenceError]]:
    """Extend the leases of these effects; the refusal of each that is not in flight any more, by its place in the list."""

    def interpret(row: Any) -> dict[int, FenceError]:
        require_serializable(row)
        gone: list[tuple[int, str, str | None]] = row.gone
        return {position - 1: lost(tickets[position - 1], state, reason) for position, state, reason in gone}

    parameters = {
        "namespace": namespace,
        "keys": [key_of(ticket.intent) for ticket in tickets],
        "attempts": [ticket.attempt for ticket in tickets],
        "tokens": [ticket.token for ticket in tickets],
    }
    return Operation("renew_all", _renew_all(), parameters, interpret, many=True)
