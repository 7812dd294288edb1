"""An operation is a value: a statement, its parameters, and a pure function from the verdict row to a result.

Nothing else is needed to run it in the caller's transaction or in our own, sync or async.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from sqlalchemy.sql import Executable

T = TypeVar("T")


@dataclass(slots=True)
class Then(Generic[T]):
    """The verdict asks for one more operation (a rare branch: an expired lease to fence, a closure to walk)."""

    operation: "Operation[T]"


def following(verdict: "T | Then[T]") -> "Operation[T] | None":
    """The operation that a verdict asks for; None when it is the result."""
    return cast("Then[T]", verdict).operation if type(verdict) is Then else None


@dataclass(slots=True)
class Operation(Generic[T]):
    """One protocol step. Never changed after it is made; not frozen, because to make a frozen one takes three times as long.

    Attributes:
        name: The verb, for logs and counters.
        statement: Built once per shape and reused, so that its compiled form is cached by identity.
        parameters: Values for the statement's binds.
        interpret: Turns the one verdict row (None when a plain read finds nothing) into a result, raises the refusal, or asks
            for another operation.
        writes: Whether it needs a serializable transaction; a plain read does not.
        many: Whether it may change many rows of others. The planner may then want to read a young table as a whole, which
            conflicts with everybody, and is told not to for this transaction.
    """

    name: str
    statement: Executable
    parameters: Mapping[str, Any]
    interpret: Callable[[Any], "T | Then[T]"]
    writes: bool = True
    many: bool = False
