"""What the fence stored, in the model's terms: rows and history that can be compared for equality."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from tests.model.interface import EffectRow, Rows
from tests.model.state import EXPIRED, LIVE, Key, Move

if TYPE_CHECKING:
    from collections.abc import Iterable

EFFECTS = """
SELECT intent_key, intent, undoes_key, coalesce(undoes_attempt, 0), attempt, state, domain, seq, branch,
       lease_expires_at > clock_timestamp(), result, commit_asked, failure, took_over, read_set, vector_clock
FROM effectfence.effects WHERE namespace = %s"""

EDGES = "SELECT intent_key, attempt, observed_key, observed_attempt FROM effectfence.edges WHERE namespace = %s"

CERTIFICATES = """
SELECT hash, intent_key, attempt, parent, reconciled_over FROM effectfence.certificates WHERE namespace = %s"""

TRANSITIONS = """
SELECT intent_key, attempt, from_state, to_state, cause, actor, origin_key, origin_attempt
FROM effectfence.transitions WHERE namespace = %s"""

UNSOUND_WATERMARKS = """
SELECT d.domain, d.settled_seq, e.seq, e.state FROM effectfence.domains d
JOIN effectfence.effects e USING (namespace, domain_key)
WHERE d.namespace = %s AND e.seq <= d.settled_seq AND e.state IN ('in_flight', 'executed', 'failed', 'aborted')"""
"""Reads skip what is below a domain's watermark: nothing that they would have to see may be there."""


class Names(NamedTuple):
    """How the effects of a namespace are called in the model: a compensation by what it undoes."""

    keys: dict[tuple[bytes, int], Key]
    hashes: dict[str, Key]

    def key(self, intent_key: Any, attempt: int) -> Key:
        return self.keys[bytes(intent_key), attempt]


class Stored(NamedTuple):
    rows: Rows
    names: Names


class Storage:
    """One namespace, read behind the library's back by primary key."""

    def __init__(self, connection: psycopg.Connection[Any], namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace

    def _all(self, query: str) -> list[Any]:
        return self._connection.execute(query, (self._namespace,)).fetchall()

    def expire(self, name: str, attempt: int) -> None:
        """Let the lease of an attempt run out: time is the database's."""
        self._connection.execute(
            "UPDATE effectfence.effects SET lease_expires_at = clock_timestamp() - interval '1 second' "
            "WHERE namespace = %s AND intent_key = sha256(convert_to(%s, 'UTF8')) AND attempt = %s "
            "AND lease_expires_at IS NOT NULL",
            (self._namespace, name, attempt),
        )

    def start_at(self, domain: str, seq: int) -> None:
        """Give a domain a past of numbers."""
        self._connection.execute(
            "INSERT INTO effectfence.domains (namespace, domain_key, domain, seq) "
            "VALUES (%s, sha256(convert_to(%s, 'UTF8')), %s, %s)",
            (self._namespace, domain, domain, seq),
        )

    def read(self) -> Stored:
        effects = self._all(EFFECTS)
        texts = {bytes(row[0]): row[1] for row in effects}
        keys = {
            (bytes(row[0]), row[4]): (row[1] if row[2] is None else texts[bytes(row[2])], row[3], row[4])
            for row in effects
        }
        certificates = self._all(CERTIFICATES)
        names = Names(keys, {row[0]: keys[bytes(row[1]), row[2]] for row in certificates})
        return Stored(
            Rows(
                {names.key(row[0], row[4]): _effect(row) for row in effects},
                dict(self._all_of("domain, seq", "domains")),
                dict(self._all_of("branch, state", "branches")),
                frozenset((names.key(*row[:2]), names.key(*row[2:])) for row in self._all(EDGES)),
                {names.key(row[1], row[2]): _certificate(row, names) for row in certificates},
            ),
            names,
        )

    def _all_of(self, columns: str, table: str) -> list[Any]:
        return self._all(f"SELECT {columns} FROM effectfence.{table} WHERE namespace = %s")

    def history(self, names: Names) -> Counter[Any]:
        """Every transition, without the order of those that one statement made."""
        return told(
            Move(names.key(*row[:2]), *row[2:6], None if row[6] is None else names.key(*row[6:]))
            for row in self._all(TRANSITIONS)
        )

    def unsound_watermarks(self) -> list[Any]:
        return self._all(UNSOUND_WATERMARKS)


def told(moves: Iterable[Move]) -> Counter[Any]:
    """Moves that can be compared: of several origins whose cascades meet in one effect, any is its cause."""
    return Counter((*move[:5], move.origin is not None) for move in moves)


def _effect(row: Any) -> EffectRow:
    state, domain, seq, branch, lease, result, asked, failure, took_over, reads, clock = row[5:]
    return EffectRow(
        state,
        domain,
        seq,
        branch,
        None if lease is None else LIVE if lease else EXPIRED,
        None if result is None else json.loads(result),
        asked,
        failure,
        took_over,
        tuple((entry["domain"], entry["seq"]) for entry in json.loads(reads)),
        tuple(sorted(json.loads(clock).items())),
    )


def _certificate(row: Any, names: Names) -> tuple[Key | None, tuple[tuple[str, int, str], ...] | None]:
    parent, over = row[3], row[4]
    blockers = None if over is None else tuple(sorted(tuple(each) for each in over["blockers"]))
    return None if parent is None else names.hashes[parent], blockers
