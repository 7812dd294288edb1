"""Which database: the flag, then ``EFFECTFENCE_DATABASE_URL``. Neither means the private server, a higher layer."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar, Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from effectfence_pg.errors import FenceError

DATABASE_VARIABLE = "EFFECTFENCE_DATABASE_URL"
DRIVER = "postgresql+psycopg"
CLIENT_ENCODING = {"client_encoding": "utf8"}
"""For every connection of ours: with what a SQL_ASCII database offers, the driver would hand out bytes for text."""
ACCEPTED = ("postgres", "postgresql", DRIVER)


class InvalidDatabaseUrl(FenceError, ValueError):
    """A database URL cannot be used. Neither the message nor the facts repeat it: it may hold a password."""

    reason: str

    template: ClassVar[str] = "the database URL cannot be used: {reason}"
    advice: ClassVar[str] = "Give a URL such as postgresql://user:password@host:5432/database."


@dataclasses.dataclass(frozen=True)
class GivenDatabase:
    """A URL that somebody gave, and where."""

    url: URL
    source: Literal["flag", "environment"]


def normalise_url(url: str | URL) -> URL:
    """Return the URL with psycopg 3 as its driver.

    ``postgres://`` and ``postgresql://`` are what other tools write; another driver was asked for on purpose, and is
    refused rather than replaced.

    Raises:
        InvalidDatabaseUrl: It is no URL, or another database's or driver's.
    """
    try:
        parsed = make_url(url.strip() if isinstance(url, str) else url)
    except (ArgumentError, ValueError) as error:
        raise InvalidDatabaseUrl(reason="it is not of the form dialect://user:password@host:port/database") from error
    if parsed.drivername not in ACCEPTED:
        raise InvalidDatabaseUrl(reason=f"{parsed.drivername} is not supported, only PostgreSQL through psycopg 3 is")
    return parsed.set(drivername=DRIVER)


def given_database(flag: str | None = None) -> GivenDatabase | None:
    """The database that the flag or the environment names, None when neither does.

    An empty variable names nothing; an empty flag is a mistake, of a script most often: `--database-url "$UNSET"`.

    Raises:
        InvalidDatabaseUrl: What is named cannot be used.
    """
    if flag is not None:
        if not flag.strip():
            raise InvalidDatabaseUrl(reason="it is empty")
        return GivenDatabase(normalise_url(flag), "flag")
    if variable := os.environ.get(DATABASE_VARIABLE):
        return GivenDatabase(normalise_url(variable), "environment")
    return None
