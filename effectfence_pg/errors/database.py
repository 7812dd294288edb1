"""Refusals whose cause is the database: not there, not migrated, not serializable, or too busy."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import ClassVar

from effectfence_pg.errors.base import FenceError


class SerializationConflict(FenceError):
    """The caller's transaction lost a serialization race. `sqlstate` is 40001, 40P01 or 53200."""

    sqlstate: str

    template: ClassVar[str] = "the transaction lost a serialization race (SQLSTATE {sqlstate})"
    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = "Roll back and run the whole transaction again, never across a tool that already ran."


class IsolationTooWeak(FenceError):
    """The caller's transaction is not SERIALIZABLE."""

    isolation: str

    template: ClassVar[str] = "the transaction runs at {isolation}; the fence needs serializable"
    advice: ClassVar[str] = "Begin the transaction at isolation level SERIALIZABLE and call again."


class SchemaVersionError(FenceError):
    """The database's schema is not the one this library works with. `found` is None when it was never migrated."""

    found: str | None
    expected: str
    command: str

    advice: ClassVar[str] = "Ask an operator to run the named command; nothing can be admitted until then."

    def _message(self) -> str:
        found = "was never migrated" if self.found is None else f"is at schema revision {self.found}"
        return f"the database {found}, this library needs {self.expected}; run: {self.command}"


class DatabaseUnavailable(FenceError):
    """The database cannot be reached, or takes no work from anybody now, so nothing is admitted."""

    reason: str

    template: ClassVar[str] = "the database cannot be used: {reason}"
    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = "Do not run the effect without an admission: wait and call again with the same request."


class DatabaseFailure(FenceError):
    """The database answered, with an error that says nothing about an effect. What was sent to it changed nothing."""

    reason: str
    sqlstate: str

    template: ClassVar[str] = "the database answers with an error: {reason} (SQLSTATE {sqlstate})"
    advice: ClassVar[str] = (
        "Nothing was changed: where somebody was in the way, such as with a lock, make the same call again later; otherwise "
        "ask an operator to mend what the database names."
    )


class PermissionDenied(FenceError):
    """The database's role has no right to do this, or row security belongs to another namespace. Nothing was changed."""

    reason: str

    template: ClassVar[str] = "the database refuses: {reason}"
    advice: ClassVar[str] = (
        "Ask an operator to grant the role that this needs: effectfence_app to run effects, effectfence_operator to resolve "
        "them as well, effectfence_auditor to read only; under row security set row_security of the FenceConfig or the "
        "gateway's policy, or mcp --row-security, too."
    )


class DatabaseEncodingError(FenceError):
    """The database's encoding is not UTF8."""

    encoding: str

    template: ClassVar[str] = "the database is encoded in {encoding}; the fence needs UTF8"
    advice: ClassVar[str] = "Ask an operator for a database created with ENCODING 'UTF8'."


class RetriesExhausted(FenceError):
    """Every retry lost a serialization race until the deadline. The last try changed nothing."""

    attempts: int
    elapsed_seconds: float
    sqlstate: str

    template: ClassVar[str] = (
        "gave up after {attempts} tries in {elapsed_seconds:.1f} s, the last with SQLSTATE {sqlstate}"
    )
    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = "The database is too busy on these rows: wait, then make the same call again."
