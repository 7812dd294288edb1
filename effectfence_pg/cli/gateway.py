"""``gateway``: the fence in front of any MCP server, and ``gateway check``: is this a policy."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.mcp import HttpOption, TokenOption, usage
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, reporting
from effectfence_pg.cli.storm import usable_database
from effectfence_pg.errors import InvalidRequest

if TYPE_CHECKING:
    from effectfence_pg.gateway.policy import Policy
    from effectfence_pg.gateway.transports import Way

COMMAND = "effectfence.upstream"
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="What is done with which tool, in TOML.", show_default=False),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="An upstream on streamable HTTP, instead of a command.")
]


class BehindDashes(TyperGroup):
    """Everything behind `--` is the upstream's command, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the command apart."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=BehindDashes, invoke_without_command=True)


@app.callback(options_metavar="[OPTIONS] [-- COMMAND...]", subcommand_metavar="[check]")
def gateway(
    context: typer.Context,
    *,
    url: UrlOption = None,
    policy: PolicyOption = None,
    http: HttpOption = None,
    token_file: TokenOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Put the fence in front of an MCP server: `effectfence-pg gateway -- npx some-server`.

    Every call of a tool that is not marked read-only runs once, whoever repeats it, through however many gateways.

    An upstream at --url gets what the variable EFFECTFENCE_UPSTREAM_AUTHORIZATION holds as its Authorization header.
    """
    if context.invoked_subcommand is not None:
        return
    with needs("gateway"):
        from effectfence_pg import serving  # noqa: PLC0415  the extra may be missing
        from effectfence_pg.gateway.policy import read_policy  # noqa: PLC0415
        from effectfence_pg.gateway.running import serve  # noqa: PLC0415
    with reporting(as_json=False), usage():
        transport = transport_of(context.meta.get(COMMAND), url)
        checked = read_policy(policy)
        address = None if http is None else serving.parse_address(http)
        if address is None:
            checked.check_over_stdio()
        token = "" if address is None else serving.bearer_token(token_file)
        with usable_database(database_url) as database:
            asyncio.run(serve(database, checked, transport, address, token))


def transport_of(command: list[str] | None, url: str | None) -> Way:
    """The way to the upstream.

    Raises:
        InvalidRequest: There is none, or there are two.
    """
    from effectfence_pg.gateway.transports import command_transport, url_transport  # noqa: PLC0415

    if bool(command) == bool(url):
        raise InvalidRequest(field="upstream", reason="give a command behind --, or --url, one of them")
    if url:
        if not url.startswith(("http://", "https://")):
            raise InvalidRequest(field="url", reason="is no http or https URL")
        return url_transport(url)
    words = list(command or ())
    if shutil.which(words[0]) is None:
        raise InvalidRequest(field="upstream", reason=f"there is no command {words[0]!r}")
    return command_transport(words)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML.")], as_json: JsonOption = False
) -> None:
    """Say what a policy comes to. Exit status 1: it is none, and which field is wrong."""
    from effectfence_pg.gateway.policy import read_policy  # noqa: PLC0415

    try:
        policy = read_policy(file)
    except InvalidRequest as error:
        answer(as_json, {"valid": False, "field": error.field, "reason": error.reason}, f"not a policy: {error}")
        raise typer.Exit(EXIT_NO) from error
    answer(as_json, {"valid": True, "policy": policy.model_dump(mode="json")}, _told(policy))


def _told(policy: Policy) -> str:
    lines = [f"namespace {policy.namespace}, agent {policy.agent}"]
    for rule in policy.tool:
        said = {
            name: value for name, value in rule.model_dump(mode="json", exclude_none=True).items() if name != "match"
        }
        action = said.pop("action", "by the upstream's hint")
        lines.append(f"{rule.match}: {action}" + "".join(f", {name} {value}" for name, value in said.items()))
    lines.append("everything else: fenced, unless the upstream marks it read-only")
    return "\n".join(lines)
