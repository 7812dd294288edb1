"""Fencing expired leases as operations: one before something else, or many at once."""

from __future__ import annotations

from typing import Any

from effectfence_pg.protocol.verdicts import require_serializable
from effectfence_pg.sql import reconciliation
from effectfence_pg.sql.operation import Operation, Then

FENCE_ACTOR = "effectfence"
"""The actor on record when the fence itself acts: an expired lease that nobody in particular noticed."""


def fence_before(then: Operation[Any], namespace: str, key: bytes, attempt: int, actor: str) -> Operation[Any]:
    """Fence one expired lease, then go on."""
    operation = fence_expired(namespace, [key], [attempt], actor)

    def interpret(_row: Any) -> Then[Any]:
        return Then(then)

    return Operation("fence", operation.statement, operation.parameters, interpret, many=True)


def fence_expired(namespace: str, keys: list[bytes], attempts: list[int], actor: str = FENCE_ACTOR) -> Operation[int]:
    """Fence the effects of the list whose lease ran out; how many there were."""

    def interpret(row: Any) -> int:
        require_serializable(row)
        return int(row.fenced)

    parameters = {"namespace": namespace, "keys": keys, "attempts": attempts, "actor": actor}
    return Operation("sweep", reconciliation.fence_expired(), parameters, interpret, many=True)


def expired(namespace: str, row_limit: int) -> Operation[tuple[list[bytes], list[int]]]:
    """Which effects have a lease that ran out."""
    return Operation(
        "expired",
        reconciliation.expired(),
        {"namespace": namespace, "row_limit": row_limit},
        lambda row: ([bytes(key) for key in row.keys], list(row.attempts)),
        writes=False,
    )
