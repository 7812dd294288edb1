"""The command line: ``effectfence-pg``."""

from __future__ import annotations

import gc
import sys

EXTRA_MODULES = ("typer", "rich", "click")
EXTRA_MISSING = "The command line needs an extra: pip install 'effectfence-pg[cli]'"
EXIT_USAGE = 2


def main() -> None:
    """Run the command line. Without the extra ``cli``: one line that says what to install, and exit status 2."""
    # Nothing of what is imported is garbage: to look for it takes a seventh of the start, and would again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        from effectfence_pg.cli.app import app  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_MODULES:
            raise
        print(EXTRA_MISSING, file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)
    else:
        gc.freeze()
    finally:
        # Whoever runs a command in a process of his own has it going on.
        if collects:
            gc.enable()
    app(prog_name="effectfence-pg")
