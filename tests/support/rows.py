"""What is stored, read past the library: snapshots that tell whether anything at all was changed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from effectfence_pg.sql.tables import metadata

Snapshot = dict[str, list[tuple[Any, ...]]]


def rows(engine: sa.Engine, namespace: str) -> Snapshot:
    """Every row of a namespace in every table, with the transaction that wrote it and the place it stands in.

    A row that is rewritten with equal values, or only locked, is not the same row.
    """
    with engine.connect() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(
                    sa.text(
                        f"SELECT t.xmin::text, t.xmax::text, t.ctid::text, t.* FROM effectfence.{table.name} t "
                        f"WHERE t.namespace = :namespace ORDER BY {', '.join(str(n + 4) for n in range(len(table.primary_key)))}"
                    ),
                    {"namespace": namespace},
                )
            ]
            for table in metadata.sorted_tables
        }


def one(engine: sa.Engine, query: str, **parameters: Any) -> Any:
    """The single value of a query."""
    with engine.connect() as connection:
        return connection.execute(sa.text(query), parameters).scalar_one()


def all_of(engine: sa.Engine, query: str, **parameters: Any) -> list[Any]:
    """The rows of a query; bare values when it has one column."""
    with engine.connect() as connection:
        found = connection.execute(sa.text(query), parameters).all()
    return [row[0] if len(row) == 1 else tuple(row) for row in found]


def change(engine: sa.Engine, statement: str, *, unguarded: bool = False, **parameters: Any) -> int:
    """Do something behind the library's back, a superuser also past what keeps committed effects; how many rows it met."""
    with engine.begin() as connection:
        if unguarded:
            connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        return connection.execute(sa.text(statement), parameters).rowcount


def expire_lease(engine: sa.Engine, namespace: str, intent: str) -> None:
    """Move the end of an intent's lease into the past: time is the database's, and tests do not wait for it."""
    moved = change(
        engine,
        "UPDATE effectfence.effects SET lease_expires_at = clock_timestamp() - interval '1 second' "
        "WHERE namespace = :namespace AND intent = :intent AND lease_expires_at IS NOT NULL",
        namespace=namespace,
        intent=intent,
    )
    assert moved == 1, f"{intent} has {moved} leases"
