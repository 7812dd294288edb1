"""What a running tool can know of the effect that it is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from effectfence_pg.values import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from effectfence_pg.errors import FenceError


@dataclass(frozen=True, slots=True)
class CurrentEffect:
    """The effect whose tool is running here.

    Attributes:
        namespace: The tenant.
        intent: The action's id.
        attempt: The attempt, counted from 1.
        seq: The number to hand downstream: the downstream keeps the highest it saw *for this intent* and refuses lower ones.
            Compared per domain it would refuse a slower neighbour that is in its right.
        domain: The contention scope.
        tool: The tool's name.
        args: The args at admission.
        agent: Who acts.
    """

    namespace: str
    intent: str
    attempt: int
    seq: int
    domain: str
    tool: str
    args: Any
    agent: str
    _lost: Callable[[], FenceError | None] = lambda: None

    @property
    def idempotency_key(self) -> str:
        """A key for the downstream system, the same for every attempt of the intent: 64 lower hex digits."""
        return idempotency_key(self.namespace, self.intent)

    @property
    def lease_lost(self) -> FenceError | None:
        """Why the tool can stop, when its effect is no longer its own; None as far as is known."""
        return self._lost()


def idempotency_key(namespace: str, intent: str) -> str:
    """The downstream idempotency key of an intent."""
    return sha256(canonical_json([namespace, intent]).encode()).hexdigest()


_current: ContextVar[CurrentEffect | None] = ContextVar("effectfence_current_effect", default=None)


def current_effect() -> CurrentEffect:
    """The effect whose tool is running here.

    Raises:
        LookupError: No fenced tool is running in this thread or task.
    """
    found = _current.get()
    if found is None:
        msg = "no fenced tool is running here"
        raise LookupError(msg)
    return found


class Entered:
    """What runs inside is this effect's tool."""

    def __init__(self, effect: CurrentEffect) -> None:
        self._effect = effect

    def __enter__(self) -> CurrentEffect:
        self._token = _current.set(self._effect)
        return self._effect

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
