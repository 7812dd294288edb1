"""What happened, told to whoever listens: stable event names and facts, never arguments, results or evidence.

The one hook is around the steps of a verb, which every fence drives, sync or async. Nobody listens: one comparison a call.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from effectfence_pg.errors import FenceError
from effectfence_pg.steps import Pause, Steps
from effectfence_pg.values import EffectCert, Fresh, Held, Replay

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

LOGGER: Final = logging.getLogger("effectfence_pg")
"""Events are logged here, at INFO; `event` and `facts` are on the record."""

_OUTCOMES: Final[dict[type, str]] = {Fresh: "admitted", Replay: "replayed", EffectCert: "committed", Held: "held"}


@dataclass(frozen=True, slots=True)
class Event:
    """One verb that was called, and what became of it.

    Attributes:
        name: `effectfence.` and the outcome: admitted, replayed, committed, held, done, refused or error; stable.
        verb: prepare, commit, abort, renew, reconcile, ...
        namespace: The tenant.
        outcome: The same as in the name.
        cause: The code of a refusal, or the class of another error.
        intent: The action's id, where the answer names one.
        attempt: Its attempt, likewise.
        retries: Transactions that were run again.
        started_ns: When it began, nanoseconds since the epoch, by this machine's clock.
        seconds: How long it took, waiting included.
    """

    name: str
    verb: str
    namespace: str
    outcome: str
    cause: str | None
    intent: str | None
    attempt: int | None
    retries: int
    started_ns: int
    seconds: float

    def facts(self) -> dict[str, Any]:
        """Everything that is known, ready for a log line."""
        shown = {name: getattr(self, name) for name in ("verb", "namespace", "cause", "intent", "attempt", "retries")}
        return {name: value for name, value in shown.items() if value is not None} | {"seconds": round(self.seconds, 6)}


class Listener(Protocol):
    """Told every event, in the thread that made the call; what it raises is logged and goes no further."""

    def __call__(self, event: Event, /) -> None:
        """One event."""
        ...


_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Tell this listener every event until the `with` statement ends."""
    add(listener)
    try:
        yield
    finally:
        remove(listener)


def add(listener: Listener) -> None:
    """Tell this listener every event of this process from now on."""
    _listeners.append(listener)


def remove(listener: Listener) -> None:
    """Tell it no more."""
    _listeners.remove(listener)


def wanted() -> bool:
    """Whether anybody listens."""
    return bool(_listeners) or LOGGER.isEnabledFor(logging.INFO)


def told(running: Steps[T], namespace: str) -> Steps[T]:
    """The same steps; what became of them is told at the end."""
    started_ns, started = time.time_ns(), time.monotonic()
    verb, retries = "", 0

    def tell(outcome: str, cause: str | None, subject: Any) -> None:
        intent, attempt = _subject(subject)
        seconds = time.monotonic() - started
        name = f"effectfence.{outcome}"
        _tell(Event(name, verb, namespace, outcome, cause, intent, attempt, retries, started_ns, seconds))

    try:
        asked = next(running)
        while True:
            if isinstance(asked, Pause):
                retries += asked.retry
            else:
                verb = verb or asked.name
            try:
                answer = yield asked
            except Exception as error:  # noqa: BLE001 (every outcome goes back to the steps, which decide)
                asked = running.throw(error)
            else:
                asked = running.send(answer)
    except StopIteration as done:
        tell(_OUTCOMES.get(type(cast("object", done.value)), "done"), None, done.value)
        return done.value
    except FenceError as error:
        tell("refused", error.code, error)
        raise
    except Exception as error:
        tell("error", type(error).__name__, None)
        raise
    finally:
        running.close()


def _subject(subject: Any) -> tuple[str | None, int | None]:
    """Whose event it is: the ticket of an admission, a certificate, or what a refusal names."""
    about = getattr(subject, "prepared", None) or getattr(subject, "certificate", None) or subject
    intent, attempt = getattr(about, "intent", None), getattr(about, "attempt", None)
    return (intent if isinstance(intent, str) else None), (attempt if isinstance(attempt, int) else None)


def _tell(event: Event) -> None:
    if LOGGER.isEnabledFor(logging.INFO):
        facts = event.facts()
        words = " ".join(f"{name}={value!r}" for name, value in facts.items())
        LOGGER.info("%s %s", event.name, words, extra={"event": event.name, "facts": facts})
    for listener in tuple(_listeners):
        try:
            listener(event)
        except Exception:
            # A verb has done its work by now: what its witness makes of it changes nothing.
            LOGGER.exception("effectfence.listener_failed")
