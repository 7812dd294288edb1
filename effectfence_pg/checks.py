"""Arguments that are no values of their own: refused by their name, before any database work."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import (
    MAX_LEASE_SECONDS,
)

if TYPE_CHECKING:
    from enum import StrEnum


E_ = TypeVar("E_", bound="StrEnum")


def choice(kind: type[E_], value: str, field: str) -> E_:
    """The member of this value.

    Raises:
        InvalidRequest: There is none; the reason lists them.
    """
    try:
        return kind(value)
    except ValueError:
        members = ", ".join(member.value for member in kind)
        raise InvalidRequest(field=field, reason=f"is none of {members}") from None


def check_number(value: Any, field: str, least: int, most: int) -> None:
    """Refuse what is no integer from `least` to `most`.

    Raises:
        InvalidRequest: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(field=field, reason=f"is no integer from {least} to {most}")


def require_connection(given: Any, *, awaits: bool) -> None:
    """Refuse what is no connection, or one of the other kind, before anything is asked of it.

    Raises:
        InvalidRequest: An engine, a URL, an AsyncConnection for a FenceRepository or the other way round.
    """
    execute = getattr(given, "execute", None)
    if execute is None or inspect.iscoroutinefunction(execute) != awaits:
        wanted = "an AsyncConnection" if awaits else "a Connection"
        reason = f"is of type {type(given).__name__}; give {wanted} with a transaction of yours, as engine.begin() has"
        raise InvalidRequest(field="connection", reason=reason)


def patience(value: Any, field: str) -> float:
    """How long a call may wait, in seconds: none when it does not say.

    Raises:
        InvalidRequest: It is no time from zero up.
    """
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_LEASE_SECONDS:
        raise InvalidRequest(field=field, reason=f"is no number of seconds from 0 to {MAX_LEASE_SECONDS:.0f}")
    return float(value)
