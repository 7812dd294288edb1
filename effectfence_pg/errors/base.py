"""The base of every refusal, and the small values that refusals carry."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, cast, dataclass_transform


@dataclass(frozen=True, slots=True)
class Blocker:
    """An effect that stands in the way: its intent, its attempt, and the state it was seen in."""

    intent: str
    attempt: int
    state: str

    def __str__(self) -> str:
        return f"{self.intent!r} attempt {self.attempt} is {self.state}"


@dataclass(frozen=True, slots=True)
class MovedEntry:
    """A read-set entry whose domain has moved: `seq` is the number that was read, `live` the one it has now."""

    domain: str
    seq: int
    live: int

    def __str__(self) -> str:
        return f"{self.domain!r} was read at {self.seq} and is at {self.live}"


@dataclass(frozen=True, slots=True)
class UnsettledEntry:
    """A read-set entry that may show a value nobody has committed.

    `blockers` are the effects that unsettle the domain. It is empty when the entry itself says that it was observed
    unsettled and nothing unsettles the domain any more.
    """

    domain: str
    seq: int
    blockers: tuple[Blocker, ...] = ()

    def __str__(self) -> str:
        why = listed(self.blockers) if self.blockers else "it was observed unsettled"
        return f"{self.domain!r} at {self.seq}: {why}"


def listed(items: tuple[object, ...], *, limit: int = 5) -> str:
    """Name the first `limit` items and count the rest, so that a message stays a sentence."""
    named = "; ".join(str(item) for item in items[:limit])
    rest = len(items) - limit
    return f"{named}; and {rest} more" if rest > 0 else named


def _json_ready(value: object) -> object:  # noqa: PLR0911 (one case for each kind of fact)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [_json_ready(item) for item in cast("tuple[object, ...]", value)]
    if is_dataclass(value):
        return {field.name: _json_ready(getattr(value, field.name)) for field in fields(value)}
    # Certificates and fallen effects are facts from a higher layer; they know their own JSON form.
    wire = getattr(value, "wire", None)
    return wire() if callable(wire) else str(value)


def _rebuild(kind: type[FenceError], facts: dict[str, Any]) -> FenceError:
    return kind(**facts)


@dataclass_transform(kw_only_default=True, eq_default=False)
class FenceError(Exception):
    """Base of every error that the fence raises on purpose.

    Subclasses declare their facts as annotated fields; each is a keyword argument and an attribute.

    Attributes:
        code: The class name in snake_case, stable across releases.
        retryable: Whether the same call, unchanged, may succeed later.
        advice: What to do now, in one sentence that a person or a model can follow.
    """

    code: ClassVar[str] = "fence_error"
    retryable: ClassVar[bool] = False
    advice: ClassVar[str] = "Stop and report this error; do not run the effect."
    template: ClassVar[str] = "the fence refused"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        self.args = (self._message(),)
        advice = self._advice()
        if advice is not None:
            # The class carries the usual advice; an instance whose facts call for another one carries its own.
            object.__setattr__(self, "advice", advice)

    def _message(self) -> str:
        return self.template.format_map(vars(self))

    def _advice(self) -> str | None:
        return None

    def _facts(self) -> dict[str, Any]:
        if not is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def facts(self) -> dict[str, object]:
        """Return the facts by name, ready for JSON: times as ISO 8601, digests as lower hex."""
        return {name: _json_ready(value) for name, value in self._facts().items()}

    def as_dict(self) -> dict[str, object]:
        """Return code, message, retryable, advice and facts, ready for JSON."""
        return {
            "code": self.code,
            "message": str(self),
            "retryable": self.retryable,
            "advice": self.advice,
            "facts": self.facts(),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle their positional args only, and these have none.
        return _rebuild, (type(self), self._facts())
