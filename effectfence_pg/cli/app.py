"""The application, and its commands: each module adds itself in one line."""

from __future__ import annotations

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, cast

import typer

from effectfence_pg.cli import audit, db, demo, gateway, intents, mcp, operate, probe, rollback_storm, storm

app = typer.Typer(
    name="effectfence-pg",
    help="A durable fence between AI agents and the world, on PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would show passwords
)
app.add_typer(db.app, name="db")
app.add_typer(gateway.app, name="gateway")
app.command()(storm.storm)
app.command()(mcp.mcp)
app.command()(demo.demo)
app.command()(probe.probe)
app.command()(rollback_storm.rollback_storm)
app.add_typer(intents.app, name="intents")
app.command()(intents.unresolved)
app.command()(operate.reconcile)
app.command()(operate.sweep)
app.command()(operate.settle)
app.command()(operate.stats)
app.command()(audit.lineage)
app.command()(audit.verify)
app.command()(audit.export)
app.command("import")(audit.bring_in)
app.command()(audit.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("effectfence-pg"))
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable fence between AI agents and the world, on PostgreSQL."""
    del show_version
    if issubclass(type(sys.stdout), TextIOWrapper):
        # What is exported and answered is read by programs, whatever the terminal's encoding.
        cast("TextIOWrapper", sys.stdout).reconfigure(encoding="utf-8")
