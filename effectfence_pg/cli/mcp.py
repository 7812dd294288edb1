"""``mcp``: the fence as a server of the Model Context Protocol, over stdio or streamable HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.options import NamespaceOption  # noqa: TC001 (typer reads it at run time)
from effectfence_pg.cli.output import EXIT_USAGE, DatabaseUrlOption, reporting
from effectfence_pg.cli.storm import usable_database
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import FenceConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from effectfence_pg.async_fence import AsyncFence

HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http", metavar="HOST:PORT", help="Serve streamable HTTP at /mcp instead of stdio.", show_default=False
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="With --http: holds the bearer token. Default: the variable EFFECTFENCE_MCP_TOKEN.",
        show_default=False,
    ),
]


def mcp(
    *,
    http: HttpOption = None,
    token_file: TokenOption = None,
    namespace: NamespaceOption = "default",
    operator: Annotated[
        bool, typer.Option("--operator", help="Serve fence_reconcile too: for people, not for agents.")
    ] = False,
    row_security: Annotated[
        bool, typer.Option("--row-security", help="Name the tenant to the server, for row security by namespace.")
    ] = False,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Serve the fence's tools to an agent: fence_prepare, fence_commit, fence_abort and their kin."""
    with needs("mcp"):
        from effectfence_pg import serving  # noqa: PLC0415  the extra may be missing
        from effectfence_pg.mcp.server import FenceServer  # noqa: PLC0415
    with reporting(as_json=False), usage():
        address = None if http is None else serving.parse_address(http)
        token = "" if address is None else serving.bearer_token(token_file)

        async def serve(fence: AsyncFence) -> None:
            server = FenceServer(fence, operator=operator).server
            if address is None:
                await serving.serve_stdio(server)
            else:
                await serving.serve_http(server, address, token)

        with usable_database(database_url) as url:
            asyncio.run(_fenced(url, namespace, FenceConfig(row_security=row_security), serve))


async def _fenced(
    url: str, namespace: str, config: FenceConfig, serve: Callable[[AsyncFence], Coroutine[None, None, None]]
) -> None:
    from effectfence_pg.async_fence import AsyncFence  # noqa: PLC0415  slow to import, and only this needs it

    async with AsyncFence(url, namespace=namespace, config=config) as fence:
        # A database that cannot be used is said before anybody is served.
        await fence.current("nothing")
        await serve(fence)


class usage:  # noqa: N801 (reads as a phrase where it is used)
    """What is wrong with how the command was called ends it with exit status 2."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidRequest):
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(EXIT_USAGE) from error
