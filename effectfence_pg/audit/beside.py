"""What stands in a ledger beside a certificate's own fields: no hash covers it, so that it is checked before it is believed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from effectfence_pg.calls import MAX_ATTEMPT
from effectfence_pg.values import MAX_NAMESPACE_BYTES, check_name
from effectfence_pg.values.canonical import to_json_value

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9998
VIAS: Final = frozenset({"read_set", "observes", "parent"})


def _tenant(name: str) -> str:
    return check_name(name, field="namespace", max_bytes=MAX_NAMESPACE_BYTES)


def _instant(text: str) -> str:
    instant = datetime.fromisoformat(text)
    # Every zone has it, on both sides of the wire.
    if instant.tzinfo is None or not FIRST_YEAR <= instant.year <= LAST_YEAR:
        msg = "it has no zone, or is out of range"
        raise ValueError(msg)
    return text


def _plain(facts: dict[str, Any] | None) -> Any:
    return to_json_value(facts, field="reconciled_over", nul=False)


def _observed(step: list[Any]) -> list[Any]:
    intent, attempt, via = step
    check_name(intent, field="observed")
    if type(attempt) is not int or not 1 <= attempt <= MAX_ATTEMPT or via not in VIAS:
        msg = "it names no step"
        raise ValueError(msg)
    return step


class Beside(BaseModel):
    """What stands beside a certificate's own fields, as it may be stored."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    namespace: Annotated[str, AfterValidator(_tenant)]
    hash: str
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
    minted_at: Annotated[str, AfterValidator(_instant)]
    reconciled_over: Annotated[dict[str, Any] | None, AfterValidator(_plain)]
    identity_fields: list[str] | None
    observed: list[Annotated[list[Any], AfterValidator(_observed)]] | None
