"""What one call of prepare asks for."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from effectfence_pg.values import EffectRequest, LeaseExpiry, ReadSetEntry, VectorClock


@dataclass(frozen=True, slots=True)
class Target:
    """The attempt that a compensation undoes."""

    intent: str
    attempt: int


@dataclass(slots=True)
class Admission:
    """One call of prepare: what was asked, for whom, and the token that the call brings along.

    The token belongs to the call and not to the statement, so that a call whose answer was lost recognises its own admission.
    """

    request: EffectRequest
    namespace: str
    lease_seconds: float
    on_lease_expiry: LeaseExpiry
    read_set: tuple[ReadSetEntry, ...]
    undoes: Target | None = None
    _token: UUID | None = None
    _clock: VectorClock | None = None

    @property
    def token(self) -> UUID:
        """Made when it is first needed: a replay needs none."""
        if self._token is None:
            self._token = uuid4()
        return self._token

    @property
    def vector_clock(self) -> VectorClock:
        """The clock of an effect that observed nothing."""
        if self._clock is None:
            self._clock = self.request.known_clock.tick(self.request.agent)
        return self._clock


def effective_read_set(request: EffectRequest) -> tuple[ReadSetEntry, ...]:
    """The read set with `expected_seq` in it, which is short for an entry of the request's own domain."""
    expected = request.expected_seq
    if expected is None or any(entry.domain == request.domain for entry in request.read_set):
        return request.read_set
    return (*request.read_set, ReadSetEntry(domain=request.domain, seq=expected))


def rests(admission: Admission) -> bool:
    """Whether the request rests on anything that has to be read, or belongs to a plan."""
    request = admission.request
    plan = request.branch is not None or request.compensation is not None or admission.undoes is not None
    return bool(plan or admission.read_set or request.observes or request.parent)
