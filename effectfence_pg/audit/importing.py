"""A ledger brought into another database: certificates with the rows they were made from, all of them or none."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

from effectfence_pg.audit.errors import LedgerConflict
from effectfence_pg.audit.ledger import Entry, columns, entries
from effectfence_pg.audit.reading import Reader, rows
from effectfence_pg.sql import importing as statements
from effectfence_pg.values import EffectRequest
from effectfence_pg.values.canonical import canonical_json

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
    facts = columns(entry)
    try:
        digests = EffectRequest(
            **{name: facts[name] for name in ("intent", "domain", "tool", "agent")},
            args=entry.facts["args"],
            identity=entry.facts.get("identity_fields"),
        ).fingerprint
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


def _fixed(statement: str) -> Any:
    return sql.SQL(statement)  # pyright: ignore[reportArgumentType] (a constant of ours)
