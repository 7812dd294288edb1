"""The lineage of a certificate, read from the edges with the rights of an application.

The functions of the audit walk views, which show every tenant and are for auditors; this walk reads the tables, where row
security holds, and stops at so many nodes, because a model reads the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from effectfence_pg.errors import UnknownIntent
from effectfence_pg.sql import lineage as sql
from effectfence_pg.transactions import NAME_TENANT
from effectfence_pg.values import key_of

if TYPE_CHECKING:
    from effectfence_pg.async_fence import AsyncFence

MAX_NODES: Final = 1000
"""Nodes of one answer, the nearest first: a model reads it."""
MAX_STEPS: Final = 1000


async def lineage(fence: AsyncFence, name: str, *, dependents: bool, depth: int | None) -> dict[str, Any]:
    """What a certificate rests on, or what rests on it.

    Raises:
        UnknownIntent: No certificate has this hash or this intent.
    """
    parameters = {
        "namespace": fence.namespace,
        "name": name,
        "intent_key": key_of(name),
        "depth": MAX_STEPS if depth is None else min(depth, MAX_STEPS),
        "members": MAX_NODES,
    }
    await fence.observe(name)  # checks the database once, and the name
    async with fence.engine.connect() as connection:
        if fence.config.row_security:
            await connection.execute(NAME_TENANT, {"namespace": fence.namespace})
        row = (await connection.execute(sql.lineage(dependents=dependents), parameters)).one()
    if row.root is None:
        raise UnknownIntent(intent=name)
    return {"root": row.root, "dependents": dependents, "nodes": row.nodes, "edges": row.edges}
