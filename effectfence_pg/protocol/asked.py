"""What one call of prepare asks for."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from effectfence_pg.values import EffectRequest, FenceConfig, LeaseExpiry, ReadSetEntry, VectorClock


@dataclass(frozen=True, slots=True)
class Target:
    """The attempt that a compensation undoes."""

    intent: str
    attempt: int


class Admission:
    """One call of prepare: what was asked, for whom, and the token that the call brings along.

    The token belongs to the call and not to the statement, so that a call whose answer was lost recognises its own admission.
    What a replay does without is made when it is first needed.
    """

    __slots__ = ("_clock", "_config", "_read_set", "_token", "intent_key", "namespace", "request", "undoes", "verifies")

    def __init__(
        self, request: EffectRequest, namespace: str, config: FenceConfig, undoes: Target | None = None
    ) -> None:
        self.request = request
        self.intent_key = request.intent_key
        self.namespace = namespace
        self._config = config
        self.undoes = undoes
        self.verifies = False
        self._token: UUID | None = None
        self._clock: VectorClock | None = None
        self._read_set: tuple[ReadSetEntry, ...] | None = None

    @property
    def lease_seconds(self) -> float:
        """How long the effect may run unheard of."""
        return self.request.lease_seconds or self._config.lease_seconds

    @property
    def on_lease_expiry(self) -> LeaseExpiry:
        """What becomes of it then: whoever brings a hook that `verifies` wants it to be asked."""
        if self.verifies:
            return LeaseExpiry.VERIFY
        return self.request.on_lease_expiry or self._config.on_lease_expiry

    @property
    def token(self) -> UUID:
        """The fencing token."""
        if self._token is None:
            self._token = uuid4()
        return self._token

    @property
    def vector_clock(self) -> VectorClock:
        """The clock of an effect that observed nothing."""
        if self._clock is None:
            self._clock = self.request.known_clock.tick(self.request.agent)
        return self._clock

    @property
    def read_set(self) -> tuple[ReadSetEntry, ...]:
        """The read set with `expected_seq` in it, which is short for an entry of the request's own domain."""
        if self._read_set is None:
            self._read_set = _effective_read_set(self.request)
        return self._read_set


def _effective_read_set(request: EffectRequest) -> tuple[ReadSetEntry, ...]:
    expected = request.expected_seq
    if expected is None or any(entry.domain == request.domain for entry in request.read_set):
        return request.read_set
    return (*request.read_set, ReadSetEntry(domain=request.domain, seq=expected))


def rests(admission: Admission) -> bool:
    """Whether the request rests on anything that has to be read, or belongs to a plan."""
    request = admission.request
    plan = request.branch is not None or request.compensation is not None or admission.undoes is not None
    return bool(plan or admission.read_set or request.observes or request.parent)
