"""What every command shares: where answers, progress and errors go, and with which exit status.

An answer goes to stdout, as text or with ``--json`` as one object; progress and errors go to stderr. The exit status is
0 when it is done, 1 when the answer is no, 2 for wrong usage or a missing extra, 3 when the database cannot be used.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from sqlalchemy.exc import DBAPIError

from effectfence_pg.embedded import EmbeddedUnavailable, NoDatabase
from effectfence_pg.errors import (
    DatabaseEncodingError,
    DatabaseFailure,
    DatabaseUnavailable,
    FenceError,
    InvalidRequest,
    PermissionDenied,
    RetriesExhausted,
    SchemaVersionError,
)
from effectfence_pg.gateway.errors import UpstreamUnavailable
from effectfence_pg.settings import DATABASE_VARIABLE, InvalidDatabaseUrl
from effectfence_pg.sqlstates import told

if TYPE_CHECKING:
    from collections.abc import Generator

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_DATABASE = 3
DATABASE_ERRORS = (
    DatabaseEncodingError,
    DatabaseFailure,
    DatabaseUnavailable,
    EmbeddedUnavailable,
    PermissionDenied,
    RetriesExhausted,
    SchemaVersionError,
)
# Whatever a command needs and cannot get: that is no answer to what it was asked.
UNUSABLE = (*DATABASE_ERRORS, UpstreamUnavailable)
# A value that was refused before any database work: of a command, that is how it was called.
USAGE_ERRORS = (InvalidDatabaseUrl, InvalidRequest, NoDatabase)
# What the errors advise is for whoever is about to run an effect, and who types a command is not.
ADVICE: dict[type[FenceError], str] = {
    DatabaseUnavailable: "Check that the server runs, and host, port, database, role and password in the URL.",
    PermissionDenied: (
        "Use a role that may: effectfence_auditor for lineage, verify, export and unresolved, effectfence_operator for what "
        "looks further or decides, effectfence_app to run effects; under row security that one names its tenant: mcp with "
        "--row-security, a gateway with row_security in its policy, others in the URL, with "
        "?options=-c%20effectfence.namespace%3DNAME."
    ),
    InvalidRequest: "Correct it and run the command again; nothing was changed.",
}

DatabaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help=f"The PostgreSQL to use. Default: {DATABASE_VARIABLE}, else the private server.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")]

progress = Console(stderr=True, highlight=False)


def answer(as_json: bool, facts: dict[str, Any], text: str) -> None:
    """Give the command's answer."""
    sys.stdout.write((json.dumps(facts, ensure_ascii=False) if as_json else _harmless(text)) + "\n")
    sys.stdout.flush()


def _harmless(text: str) -> str:
    """Names come from agents: what a terminal would obey, or hide, is written out."""
    if text.isprintable():
        return text
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_shown, line)) for line in lines)


def _shown(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


@contextlib.contextmanager
def reporting(as_json: bool) -> Generator[None]:
    """Turn errors that were raised on purpose into one line, or with ``--json`` one object, and an exit status."""
    try:
        yield
    except FenceError as error:
        _report(as_json, error)
        raise typer.Exit(_status(error)) from error
    except UnicodeEncodeError as error:
        # The bytes of an argument that are no text; UTF-8 is what names are made of.
        refused = InvalidRequest(field="arguments", reason="are no text in UTF-8")
        _report(as_json, refused)
        raise typer.Exit(EXIT_USAGE) from error
    except DBAPIError as error:
        # The driver's words without the statement, its parameters and the link that SQLAlchemy adds.
        _report(as_json, told(error))
        raise typer.Exit(EXIT_DATABASE) from error


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 effect, 1,000 effects."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _report(as_json: bool, error: FenceError) -> None:
    advice = next((said for kind, said in ADVICE.items() if isinstance(error, kind)), error.advice)
    if as_json:
        said = error.as_dict() | {"advice": advice}
        sys.stdout.write(json.dumps({"error": said}, ensure_ascii=False) + "\n")
    message = " ".join(str(error).split())
    stop = "" if message.endswith((".", "?", "!")) else "."
    sys.stderr.write(f"error: {_harmless(message)}{stop} {advice}\n")


def _status(error: FenceError) -> int:
    if isinstance(error, USAGE_ERRORS):
        return EXIT_USAGE
    return EXIT_DATABASE if isinstance(error, UNUSABLE) else EXIT_NO
