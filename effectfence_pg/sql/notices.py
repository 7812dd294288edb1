"""A notification that an intent has an outcome: sent only where that was asked for, and never in the transaction itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from effectfence_pg.sql.operation import Operation
from effectfence_pg.sql.statements import statement
from effectfence_pg.values import key_of

if TYPE_CHECKING:
    from sqlalchemy import TextClause

CHANNEL: Final = "effectfence"


def heard(namespace: str, payload: str) -> bytes | None:
    """The key of the intent that a payload is about; None when it is another namespace's, or no payload of ours."""
    tenant, _, intent = payload.partition(":")
    if tenant != key_of(namespace).hex():
        return None
    try:
        return bytes.fromhex(intent)
    except ValueError:
        return None


@cache
def _notify() -> TextClause:
    return statement(verdict=f"SELECT pg_notify('{CHANNEL}', :reason)")


def notify(namespace: str, intent_key: bytes) -> Operation[None]:
    """Tell whoever listens to look at this intent."""

    def interpret(_row: Any) -> None:
        return None

    parameters = {"reason": f"{key_of(namespace).hex()}:{intent_key.hex()}"}
    return Operation("notify", _notify(), parameters, interpret, writes=False)
