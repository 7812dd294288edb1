"""What the rows of reads mean."""

from __future__ import annotations

from typing import Any

from effectfence_pg.errors import UnknownIntent
from effectfence_pg.protocol.verdicts import blockers, certificate
from effectfence_pg.values import EffectStatus, ReadSetEntry
from effectfence_pg.values.canonical import read_json


def entries(domains: tuple[str, ...], row: Any) -> tuple[ReadSetEntry, ...]:
    """The read-set entries of the observed domains, in the order they were asked for."""
    return tuple(
        ReadSetEntry(domain=domain, seq=seq, settled=settled)
        for domain, (seq, settled) in zip(domains, row.entries, strict=True)
    )


def status(namespace: str, intent: str, row: Any) -> EffectStatus:
    """The status of an intent's current attempt.

    Raises:
        UnknownIntent: The namespace has no such intent.
    """
    if row.intent is None:
        raise UnknownIntent(intent=intent)
    return EffectStatus(
        namespace=namespace,
        intent=row.intent,
        attempt=row.attempt,
        state=row.state,
        domain=row.domain,
        seq=row.seq,
        tool=row.tool,
        agent=row.agent,
        admitted_at=row.admitted_at,
        renewed_at=row.renewed_at,
        lease_expires_at=row.lease_expires_at,
        lease_live=bool(row.lease_live),
        reason=row.reason,
        failure=row.failure,
        has_result=row.result is not None,
        result=None if row.result is None else read_json(row.result),
        certificate=None if row.hash is None else certificate(row, namespace, row.attempt),
        blockers=blockers([*row.dead, *row.undecided]),
    )
