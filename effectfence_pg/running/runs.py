"""What a run asks for, what it is told, and what it comes to: values only."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from effectfence_pg.running.current import CurrentEffect
from effectfence_pg.steps import Steps, steps
from effectfence_pg.values import ClosureMode, EffectCert, Held, PreparedEffect
from effectfence_pg.waiting import admissions

if TYPE_CHECKING:
    from effectfence_pg.calls import Calls
    from effectfence_pg.running.leases import Lease
    from effectfence_pg.running.proof import NoEffect
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import Fresh, Replay
    from effectfence_pg.waiting.admissions import Memory

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ran(Generic[R_co]):
    """What `run` came to.

    Attributes:
        result: What the tool returned, now or when it ran.
        replayed: Whether it ran before, and not now.
        certificate: The certificate; None while the effect is held.
        held: What it waits for, when its certificate is withheld.
    """

    result: R_co
    replayed: bool
    certificate: EffectCert | None = None
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class Happened:
    """A verify hook's answer: the downstream system has it, and this is the result."""

    result: Any = None
    evidence: Any = "found downstream"


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """A verify hook's answer: the downstream system does not have it *and will refuse the old attempt from now on*.

    That is so when it was given the higher number of a new attempt, or locks the idempotency key, before it was asked.
    """

    evidence: Any = "absent and fenced downstream"


Verify = Callable[[CurrentEffect], Any]
"""Asks the downstream system about an attempt that was not heard of: Happened, DidNotHappen, or None: cannot tell."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run may be told beyond its request."""

    wait_seconds: float | None = None
    no_effect: NoEffect = ()
    verify: Verify | None = None
    closure: str = ClosureMode.REQUIRE
    timeout_seconds: float | None = None
    encode: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Take these steps; when the caller goes away meanwhile, give back what was admitted: its tool was not called."""

    make: Callable[[], Steps[Fresh | Replay]]
    release: Callable[[PreparedEffect], Steps[Any]]


@dataclass(frozen=True, slots=True)
class Settle:
    """Take these steps to their end, whatever becomes of the caller; `waits` for that unless the caller wants to go."""

    make: Callable[[], Steps[Any]]
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """Take these steps."""

    make: Callable[[], Steps[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """Call a function of the caller's as the effect."""

    function: Callable[[CurrentEffect], Any]
    effect: CurrentEffect


Asked = Claim | Settle | Look | Call
Running = Generator[Asked, Any, T]


@dataclass(frozen=True, slots=True)
class Desk:
    """What a fence brings to a run."""

    calls: Calls
    memory: Memory
    keep: Callable[[PreparedEffect], Lease]
    let_go: Callable[[Lease], None]
    require_open: Callable[[], None]

    def steps(self, operation: Operation[T]) -> Steps[T]:
        """One operation, retried; those who wait for what it decides are told, where that was asked for."""
        config = self.calls.config
        return admissions.told(steps(operation, config.retry_deadline_seconds), operation, config)
