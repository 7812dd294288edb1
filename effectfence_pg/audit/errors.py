"""Refusals of the audit: a file that does not hold, or that does not fit the database."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import ClassVar

from effectfence_pg.errors import FenceError


class LedgerBroken(FenceError):
    """An exported file does not hold. `line` counts from 1; 0 is the file as a whole."""

    line: int
    reason: str

    advice: ClassVar[str] = "Use another copy of the file: this one was cut, edited or written by something else."

    def _message(self) -> str:
        return f"line {self.line} of the ledger: {self.reason}" if self.line else f"the ledger: {self.reason}"


class LedgerConflict(FenceError):
    """An exported file does not fit what is on record here. Nothing was stored."""

    namespace: str
    intent: str
    reason: str

    template: ClassVar[str] = "{intent!r} of namespace {namespace!r} cannot be imported: {reason}"
    advice: ClassVar[str] = "Import into a database that does not use these intents and domains already."


class UnknownCertificate(FenceError):
    """No certificate has this hash, and no committed effect this intent, in this namespace."""

    namespace: str
    name: str

    template: ClassVar[str] = "{name!r} is neither a certificate nor a committed intent of namespace {namespace!r}"
    advice: ClassVar[str] = "Check the name and the namespace; `intents show` tells where an intent stands."


class UnknownNamespace(FenceError):
    """Nothing is on record of this namespace: neither a certificate nor an intent."""

    namespace: str

    template: ClassVar[str] = "nothing is on record of namespace {namespace!r}: neither a certificate nor an intent"
    advice: ClassVar[str] = "Check the namespace's spelling, and the database: nothing was verified."
