"""Which leases are to be extended when: pure bookkeeping, shared by the keeper's thread and by its task.

Effects of one fence whose leases are equally long are renewed together, however many there are and whenever they began: the
first of them sets the beat. So a period costs one statement for each batch, and not one for each effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from effectfence_pg.plans import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from effectfence_pg.errors import FenceError
    from effectfence_pg.values import PreparedEffect

RETRY_FRACTION = 0.25
"""The share of a period after which a renewal that failed is tried again."""


class Lease:
    """The lease of an effect whose tool is running."""

    def __init__(self, prepared: PreparedEffect, beat: Beat) -> None:
        self.prepared = prepared
        self.lost: FenceError | None = None
        self.renewals = 0
        self.beat = beat


@dataclass(eq=False)
class Beat:
    """Leases that are renewed together: `at` is when, by the process's clock; `period_seconds` how often."""

    owner: Any
    period_seconds: float
    at: float
    leases: dict[Lease, None] = field(default_factory=dict[Lease, None])


@dataclass(frozen=True)
class Batch:
    """What one statement renews."""

    owner: Any
    period_seconds: float
    beat: Beat
    leases: tuple[Lease, ...]

    def renewed(self, gone: dict[int, FenceError]) -> tuple[Lease, ...]:
        """Note what the statement said; the leases that were lost."""
        for lease in self.leases:
            lease.renewals += 1
        for position, error in gone.items():
            self.leases[position].lost = error
        return tuple(self.leases[position] for position in gone)


class Book:
    """Every lease that is kept alive. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beats: dict[tuple[Hashable, float], Beat] = {}
        self._lock = Lock()

    def add(self, owner: Any, prepared: PreparedEffect, period_seconds: float) -> tuple[Lease, bool]:
        """Keep a lease; the second answer is whether it is due before everything else."""
        with self._lock:
            first = self._next()
            key = (id(owner), period_seconds)
            beat = self._beats.get(key)
            if beat is None:
                beat = self._beats[key] = Beat(owner, period_seconds, self._clock() + period_seconds)
            lease = Lease(prepared, beat)
            beat.leases[lease] = None
            return lease, first is None or beat.at < first

    def remove(self, lease: Lease) -> None:
        """Let a lease be; nothing happens when that was done before."""
        with self._lock:
            self._remove(lease)

    def _remove(self, lease: Lease) -> None:
        lease.beat.leases.pop(lease, None)
        key = (id(lease.beat.owner), lease.beat.period_seconds)
        if not lease.beat.leases and self._beats.get(key) is lease.beat:
            del self._beats[key]

    def wait_seconds(self) -> float | None:
        """How long nothing is due; None when nothing is kept."""
        with self._lock:
            first = self._next()
            return None if first is None else max(first - self._clock(), 0.0)

    def due(self) -> list[Batch]:
        """What is to be renewed now. It is due again a period from now: before the statement, not after it."""
        with self._lock:
            now = self._clock()
            batches: list[Batch] = []
            for beat in [beat for beat in self._beats.values() if beat.at <= now]:
                beat.at = now + beat.period_seconds
                leases = tuple(beat.leases)
                batches += [
                    Batch(beat.owner, beat.period_seconds, beat, leases[at : at + BATCH])
                    for at in range(0, len(leases), BATCH)
                ]
            return batches

    def done(self, batch: Batch, gone: dict[int, FenceError]) -> None:
        """The statement was run: what it found gone is kept no longer."""
        with self._lock:
            for lease in batch.renewed(gone):
                self._remove(lease)

    def failed(self, batch: Batch) -> None:
        """The statement could not be run: try again soon."""
        with self._lock:
            batch.beat.at = min(batch.beat.at, self._clock() + batch.period_seconds * RETRY_FRACTION)

    def _next(self) -> float | None:
        return min((beat.at for beat in self._beats.values()), default=None)
