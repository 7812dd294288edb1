"""Why there is no private server."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import ClassVar

from effectfence_pg.errors import FenceError


class EmbeddedUnavailable(FenceError):
    """A private server cannot be started or used here. `missing` says what is not there, `remedy` what to do."""

    missing: str
    remedy: str

    template: ClassVar[str] = "no private PostgreSQL: {missing}"
    advice: ClassVar[str] = "Set EFFECTFENCE_DATABASE_URL to a PostgreSQL of your own."

    def _advice(self) -> str | None:
        return f"{self.remedy} Or set EFFECTFENCE_DATABASE_URL to a PostgreSQL of your own."


class NoDatabase(FenceError):
    """Nothing names a database, and there is no private server whose data could be meant."""

    template: ClassVar[str] = "no database is named, and there is no private server with data"
    advice: ClassVar[str] = "Give --database-url, or set EFFECTFENCE_DATABASE_URL."
