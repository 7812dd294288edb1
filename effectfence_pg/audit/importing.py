"""A ledger brought into another database: certificates with the rows they were made from, all of them or none."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, cast

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from effectfence_pg.audit.errors import LedgerConflict
from effectfence_pg.audit.ledger import Entry, columns, entries
from effectfence_pg.audit.reading import Reader, rows
from effectfence_pg.sql import importing as statements
from effectfence_pg.values import MAX_SEQ, EffectRequest
from effectfence_pg.values.canonical import canonical_json, read_json

if TYPE_CHECKING:
    from collections.abc import Callable


def bring_in(
    writer: Reader, file: IO[str], *, operator: str, progress: Callable[[int], None] = lambda _done: None
) -> tuple[int, int]:
    """Store every certificate of a ledger that is not here yet, in one transaction.

    Args:
        writer: A connection that may write.
        file: The ledger.
        operator: Who is on record for it.
        progress: Told how many lines were read.

    Returns:
        How many certificates were stored, and how many were here already.

    Raises:
        LedgerBroken: The file does not hold.
        LedgerConflict: An intent or a number is taken by something else, or what a certificate rests on is nowhere.
    """
    try:
        return _stored(writer, file, operator, progress)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        # What no check here has thought of, the tables' own constraints refuse.
        reason = f"the database refuses it: {str(error).partition(chr(10))[0]}"
        raise LedgerConflict(namespace="", intent="", reason=reason) from error


def _stored(writer: Reader, file: IO[str], operator: str, progress: Callable[[int], None]) -> tuple[int, int]:
    writer.execute(_fixed(statements.STAGE))
    count = 0
    copy = sql.SQL("COPY incoming ({}) FROM STDIN").format(
        sql.SQL(", ").join(sql.Identifier(name) for name in statements.COLUMNS)
    )
    with writer.cursor() as cursor, cursor.copy(copy) as copying:
        for count, entry in enumerate(entries(file), start=1):
            facts = _staged(entry)
            copying.write_row([facts[name] for name in statements.COLUMNS])
            if not count % 1000:
                progress(count)
    writer.execute(_fixed(statements.KNOWN))
    for query, reason in statements.REFUSALS:
        if wrong := rows(writer, query):
            raise LedgerConflict(namespace=wrong[0]["namespace"], intent=wrong[0]["intent"], reason=reason)
    stored = 0
    for statement in statements.STORE:
        stored = writer.execute(_fixed(statement), {"operator": operator}).rowcount
    return stored, count - stored


def _staged(entry: Entry) -> dict[str, Any]:
    try:
        facts = columns(entry)
    except (KeyError, TypeError, ValueError) as error:
        reason = "its fields are not those of a certificate"
        raise LedgerConflict(namespace=entry.namespace, intent=str(entry.facts["intent"]), reason=reason) from error
    try:
        digests = EffectRequest(
            **{name: facts[name] for name in ("intent", "domain", "tool", "agent")},
            args=entry.facts["args"],
            parent=facts["parent"],
            read_set=cast("Any", read_json(facts["read_set"])),
            known_clock=entry.facts["vector_clock"],
            identity=entry.facts.get("identity_fields"),
        ).fingerprint
        _require_number(facts["seq"])
    except ValueError as error:
        reason = "it is no action that could be admitted here"
        raise LedgerConflict(namespace=entry.namespace, intent=facts["intent"], reason=reason) from error
    over = entry.facts.get("reconciled_over")
    return {
        **facts,
        "reconciled_over": None if over is None else Jsonb(over),
        "observed": canonical_json(entry.facts.get("observed") or []),
        "identity_fields": None if digests.identity_fields is None else list(digests.identity_fields),
        "args_digest": digests.args_digest,
        "identity_digest": digests.identity_digest,
    }


def _require_number(seq: Any) -> None:
    if type(seq) is not int or not 1 <= seq <= MAX_SEQ:
        msg = "a domain gives no such number"
        raise ValueError(msg)


def _fixed(statement: str) -> Any:
    return sql.SQL(statement)  # pyright: ignore[reportArgumentType] (a constant of ours)
