"""``demo``: a charge server by itself and behind gateways, and its own books."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from pathlib import Path

import typer

from effectfence_pg.cli.cleanup import clean_up
from effectfence_pg.cli.databases import usable_database
from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, progress, reporting
from effectfence_pg.fence import Fence


def demo(*, database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Ask a charge server twelve times for one charge: by itself, behind a gateway, two, and one that is killed.

    The charges are counted in the server's own books. Exit status 1 unless the gateways let exactly one through each time.

    It writes to the database, into a new namespace that stderr names: intents and certificates stay there, and nothing that is
    unresolved.
    """
    with needs("gateway"):
        from effectfence_pg.gateway.demo import CALLS, EXPECTED, Place, run  # noqa: PLC0415  the extra may be missing

        def say(text: str) -> None:
            progress.print(f"{text} ...", soft_wrap=True)

    namespace = f"demo-{uuid.uuid4().hex[:12]}"
    use = f"writing to namespace {namespace} of"
    with (
        reporting(as_json),
        usable_database(database_url, use=use) as url,
        Fence(url, namespace=namespace) as fence,
        tempfile.TemporaryDirectory() as folder,
    ):
        # Refuses a database that cannot be used before any gateway is started on it.
        fence.current("nothing")
        try:
            counts, fenced = asyncio.run(run(Place(url, Path(folder), namespace), say))
        finally:
            clean_up(fence, "demo", "the demo is over, and its charge server and books are gone with it")
    lines = [
        f"One charge, asked for {CALLS} times; what the charge server's own books say:",
        "",
        f"  by itself                        {counts['raw']} charges",
        f"  behind a gateway                 {counts['gateway']}",
        f"  behind two gateways at once      {counts['two_gateways']}",
        f"  gateway killed after the charge  {counts['killed_after_effect']}, and "
        + ("fenced: the next caller is told to ask an operator" if fenced else "NOT fenced"),
    ]
    answer(as_json, counts, "\n".join(lines))
    if counts != EXPECTED or not fenced:
        raise typer.Exit(EXIT_NO)
