"""Commands whose libraries are an extra of their own."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import typer

from effectfence_pg.cli.output import EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Generator

MODULES = ("mcp", "mcp_types", "starlette", "uvicorn", "anyio", "httpx2", "jsonschema", "referencing")


@contextlib.contextmanager
def needs(extra: str) -> Generator[None]:
    """Without the extra: one line that says what to install, and exit status 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES:
            raise
        sys.stderr.write(f"This command needs an extra: pip install 'effectfence-pg[{extra}]'\n")
        raise typer.Exit(EXIT_USAGE) from None
