"""``probe``: does a server run the same call more than once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.gateway import UrlOption, transport_of
from effectfence_pg.cli.mcp import usage
from effectfence_pg.cli.output import EXIT_DATABASE, EXIT_NO, JsonOption, answer, reporting
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.canonical import read_json

if TYPE_CHECKING:
    from effectfence_pg.gateway.probe import Found


def probe(
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="The server.")] = None,
    *,
    tool: Annotated[str, typer.Option(help="The tool to call. It is really called.")],
    args: Annotated[str, typer.Option(metavar="JSON", help="Its arguments, the same for every call.")] = "{}",
    calls: Annotated[int, typer.Option(min=2, max=1000, help="How many calls at once.")] = 12,
    identifier: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="NAME",
            help="What every execution makes anew: a field, or the word before it. Default: what the server calls an id.",
            show_default=False,
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire identical calls at one tool of an MCP server at once, and say what the answers prove. The calls are real.

    Answers that give different ids and say the same otherwise prove that it ran more than once: exit status 1. Other answers,
    equal or different, prove nothing: exit status 0. Exit status 3: the server cannot be reached, or no call was answered.

    A server at --url gets what the variable EFFECTFENCE_UPSTREAM_AUTHORIZATION holds as its Authorization header.
    """
    with needs("gateway"):
        from effectfence_pg.gateway.probe import DOUBLE  # noqa: PLC0415  the extra may be missing
        from effectfence_pg.gateway.probe import probe as fire  # noqa: PLC0415
    with reporting(as_json), usage():
        if identifier is not None and not identifier.strip():
            raise InvalidRequest(field="id", reason="is empty")
        found = asyncio.run(fire(transport_of(command, url), tool, _object(args), calls, identifier))
    answer(as_json, found.facts(), _told(found))
    if found.verdict == DOUBLE:
        raise typer.Exit(EXIT_NO)
    if not found.answered:
        raise typer.Exit(EXIT_DATABASE)


def _told(found: Found) -> str:
    counts = f"{found.answered} of {found.calls} calls answered, {found.distinct} different answers"
    if found.executions:
        seen = f"{counts}, {found.executions} values of {found.identifier!r}"
        return f"proven double fire: {found.tool} ran at least {found.executions} times ({seen})"
    if found.distinct > 1:
        doubt = "a tool that ran once may refuse its repetitions in other words, or give each the time"
        advice = "if each run makes a value of its own, name it with --id. Two of the answers:"
        return "\n".join([f"inconclusive: {counts}; {doubt}; {advice}", *found.examples])
    doubt = f"equal answers do not prove that {found.tool} ran once" if found.answered > 1 else ""
    errors = "errors do not say whether anything ran" if found.errors else ""
    return "; ".join(filter(None, (f"inconclusive: {counts}", doubt, errors)))


def _object(text: str) -> dict[str, Any]:
    try:
        found = read_json(text)
    except InvalidRequest as error:
        raise InvalidRequest(field="args", reason=error.reason) from error
    if not isinstance(found, dict):
        raise InvalidRequest(field="args", reason="is no JSON object")
    return cast("dict[str, Any]", found)
