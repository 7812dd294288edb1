"""The storm as its users run it: how long it takes, and that one attempt executed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.results import MODES, BenchFailedError, Result, Target
from effectfence_pg.settings import DATABASE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Generator

    from benchmarks.databases import Bench

ONE: Final = Target("=", 1)
NOT_ONE = 1
"""The exit status of a storm in which not exactly one attempt executed: a result, and shown as one."""


def measure(bench: Bench) -> Generator[Result]:
    """Elapsed time and executions of `effectfence-pg storm`, in both modes in turn."""
    if importlib.util.find_spec("effectfence_pg.cli.storm") is None:
        bench.say("storm: there is no such command yet")
        return
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in range(1, bench.scale.storms + 1):
        bench.say(f"storm: run {run} of {bench.scale.storms}")
        for mode in MODES:
            runs[mode].append(_storm(bench, mode))
    for mode in MODES:
        attempts = f"{bench.scale.attempts:,} attempts"
        yield Result(
            group="storm",
            name=attempts,
            synchronous_commit=mode,
            unit="ms",
            figure=median(run["elapsed_ms"] for run in runs[mode]),
            facts={name: runs[mode][0][name] for name in ("processes", "threads")} | {"runs": len(runs[mode])},
        )
        yield Result(
            group="storm",
            name=f"{attempts}: executions",
            synchronous_commit=mode,
            unit="executions",
            # The run that differs from one the most: a median would hide it.
            figure=max((run["executions"] for run in runs[mode]), key=lambda executions: abs(executions - 1)),
            target=ONE,
            facts={"runs": len(runs[mode])},
        )


def _storm(bench: Bench, mode: str) -> dict[str, Any]:
    scale = bench.scale
    options = {"attempts": scale.attempts, "processes": scale.storm_processes, "threads": scale.storm_threads}
    command = [sys.executable, "-m", "effectfence_pg", "storm", "--json"]
    command += [f"--{name}={value}" for name, value in options.items()]
    # Not as an argument: every user of the machine sees those, and the URL has a password.
    surroundings = os.environ | {DATABASE_VARIABLE: bench.url_for(mode).render_as_string(hide_password=False)}
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=surroundings
    )
    with contextlib.suppress(ValueError):
        facts = json.loads(done.stdout)
        if done.returncode in {0, NOT_ONE} and "executions" in facts:
            return facts
    raise BenchFailedError(f"the storm ended with status {done.returncode}: {done.stderr.strip()[-600:]}")
