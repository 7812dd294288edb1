"""``probe``: does a server run the same call more than once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

import typer

from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.gateway import UrlOption, transport_of
from effectfence_pg.cli.mcp import usage
from effectfence_pg.cli.output import EXIT_NO, JsonOption, answer, reporting
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.canonical import read_json


def probe(
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="The server.")] = None,
    *,
    tool: Annotated[str, typer.Option(help="The tool to call. It is really called.")],
    args: Annotated[str, typer.Option(metavar="JSON", help="Its arguments, the same for every call.")] = "{}",
    calls: Annotated[int, typer.Option(min=2, max=1000, help="How many calls at once.")] = 12,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire identical calls at one tool of an MCP server at once, and count the different answers.

    Different answers prove that it ran more than once: exit status 1. Equal ones prove nothing. The calls are real.
    """
    with needs("gateway"):
        from effectfence_pg.gateway.probe import DOUBLE  # noqa: PLC0415  the extra may be missing
        from effectfence_pg.gateway.probe import probe as fire  # noqa: PLC0415
    with reporting(as_json), usage():
        found = asyncio.run(fire(transport_of(command, url), tool, _object(args), calls))
    counted = f"{found.answered} of {found.calls} calls answered, {found.distinct} different answers"
    if found.verdict == DOUBLE:
        answer(as_json, found.facts(), f"proven double fire: {tool} ran at least {found.distinct} times ({counted})")
        raise typer.Exit(EXIT_NO)
    answer(as_json, found.facts(), f"inconclusive: {counted}; equal answers do not prove that {tool} ran once")


def _object(text: str) -> dict[str, Any]:
    try:
        found = read_json(text)
    except InvalidRequest as error:
        raise InvalidRequest(field="args", reason=error.reason) from error
    if not isinstance(found, dict):
        raise InvalidRequest(field="args", reason="is no JSON object")
    return cast("dict[str, Any]", found)
