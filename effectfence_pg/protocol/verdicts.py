"""What every verdict row has in common: isolation, blockers, certificates, mismatched tickets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from effectfence_pg.errors import Blocker, IsolationTooWeak, MovedEntry, TicketMismatch, UnknownTicket
from effectfence_pg.values import Compensation, EffectCert, FallenEffect, PreparedEffect, ReadSetEntry, VectorClock
from effectfence_pg.values.canonical import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def require_serializable(row: Any) -> None:
    """Refuse a verdict that came out of a weaker isolation: the statement wrote nothing there.

    Raises:
        IsolationTooWeak: The caller's transaction is not SERIALIZABLE.
    """
    if row.isolation != "serializable":
        raise IsolationTooWeak(isolation=row.isolation)


def blockers(listed: Iterable[tuple[str, int, str]]) -> tuple[Blocker, ...]:
    """The effects of a JSON listing [intent, attempt, state]."""
    return tuple(Blocker(intent, attempt, state) for intent, attempt, state in listed)


def fallen(listed: Iterable[tuple[str, int, str, str | None, bool]]) -> tuple[FallenEffect, ...]:
    """The effects that an abort ended, from a JSON listing."""
    return tuple(
        FallenEffect(
            intent=intent,
            attempt=attempt,
            state=state,
            compensation=None if plan is None else Compensation.model_validate(read_json(plan)),
            due=due,
        )
        for intent, attempt, state, plan, due in listed
    )


def moved_entries(entries: Sequence[ReadSetEntry], listed: Iterable[tuple[int, int]]) -> tuple[MovedEntry, ...]:
    """The read-set entries of a JSON listing [position from 1, live number]."""
    return tuple(MovedEntry(entries[at - 1].domain, entries[at - 1].seq, live) for at, live in listed)


def stored_clock(text: str) -> VectorClock:
    """A clock from its canonical text."""
    return VectorClock(cast("dict[str, int]", read_json(text)))


def stored_read_set(text: str) -> tuple[ReadSetEntry, ...]:
    """A read set from its canonical text."""
    entries = cast("list[dict[str, Any]]", read_json(text))
    return tuple(ReadSetEntry(**entry) for entry in entries)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(micros: int) -> datetime:
    """The instant that a row gives as microseconds."""
    return _EPOCH + timedelta(microseconds=micros)


def certificate(row: Any, namespace: str, attempt: int) -> EffectCert:
    """The certificate whose stored bytes came with the row."""
    over = row.reconciled_over
    return EffectCert.from_body(
        bytes(row.body),
        hash=row.hash,
        namespace=namespace,
        attempt=attempt,
        minted_at=instant(row.minted_micros),
        reconciled_over=None if over is None else blockers(over["blockers"]),
    )


def require_own(prepared: PreparedEffect, namespace: str) -> None:
    """Refuse another tenant's ticket before any database work.

    Raises:
        TicketMismatch: The ticket names another namespace.
    """
    if prepared.namespace != namespace:
        raise TicketMismatch(intent=prepared.intent, attempt=prepared.attempt, fields=("namespace",))


def require_ticket(prepared: PreparedEffect, row: Any) -> None:
    """Compare a ticket with the stored row in the fields that never change.

    Raises:
        UnknownTicket: No effect has this token.
        TicketMismatch: The token is known and the ticket was edited; `fields` names where.
    """
    if row.intent is None:
        raise UnknownTicket(intent=prepared.intent, attempt=prepared.attempt)
    pairs = {
        "intent": (prepared.intent, row.intent),
        "attempt": (prepared.attempt, row.attempt),
        "domain": (prepared.domain, row.domain),
        "seq": (prepared.seq, row.seq),
        "tool": (prepared.tool, row.tool),
        "args": (prepared.args_digest, bytes(row.args_digest)),
        "fingerprint": (prepared.fingerprint, bytes(row.args_digest).hex()),
        "agent": (prepared.agent, row.agent),
        "branch": (prepared.branch, row.branch),
    }
    differing = [name for name, (given, stored) in pairs.items() if given != stored]
    if "args" in differing and ("domain" in differing or "tool" in differing):
        # The digest covers domain and tool as well: it says nothing about args then.
        differing.remove("args")
    if differing:
        raise TicketMismatch(intent=prepared.intent, attempt=prepared.attempt, fields=tuple(differing))
