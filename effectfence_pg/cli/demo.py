"""``demo``: a charge server by itself and behind gateways, and its own books."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import typer

from effectfence_pg.cli.extras import needs
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, progress, reporting
from effectfence_pg.cli.storm import usable_database


def demo(*, database_url: DatabaseUrlOption = None, as_json: JsonOption = False) -> None:
    """Ask a charge server twelve times for one charge: by itself, behind a gateway, two, and one that is killed.

    The charges are counted in the server's own books. Exit status 1 unless the gateways let exactly one through each time.
    """
    with needs("gateway"):
        from effectfence_pg.gateway.demo import CALLS, EXPECTED, Place, run  # noqa: PLC0415  the extra may be missing

        def say(text: str) -> None:
            progress.print(f"{text} ...", soft_wrap=True)

    with reporting(as_json), usable_database(database_url) as url, tempfile.TemporaryDirectory() as folder:
        counts, fenced = asyncio.run(run(Place(url, Path(folder)), say))
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
