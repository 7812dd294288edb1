"""One framework in a process of its own: it plays one fault, or the half of one before or after a kill.

    python -m frameworks.part FRAMEWORK FAULT PART WITNESS DIRECTORY [URL NAMESPACE]

Without a URL the tool is unfenced. The witness is a file that the tool appends a line to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.script import CALL, DIE, DONE, FAIL, TWICE, ModelError, Script

from effectfence_pg import Fence
from frameworks.faults import EQUAL, INTERRUPTED, KILLED

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Play it."""
    framework, fault, part, witness, directory, *fenced = sys.argv[1:]

    def charge(order_id: str) -> str:
        """Charge the card of an order."""
        with Path(witness).open("a", encoding="utf-8") as lines:
            lines.write(f"{os.getpid()} charged {order_id}\n")
        return f"receipt of {order_id}"

    run = importlib.import_module(f"examples.{framework}_tool").run
    with contextlib.ExitStack() as exits:
        tool: Callable[..., Any] = charge
        if fenced:
            url, namespace = fenced
            fence = exits.enter_context(Fence(url, namespace=namespace))
            tool = fence.bind(charge, intent="charge:{order_id}", wait_seconds=30)
        print(play(Setting(framework, fault, int(part), Path(directory)), run, tool))


@dataclass(frozen=True)
class Setting:
    """What is played, and where; `part` is 2 after a kill."""

    framework: str
    fault: str
    part: int
    directory: Path


def play(setting: Setting, run: Callable[..., str], tool: Any) -> str:
    """The answer of the agent in the end."""
    checkpoints = setting.directory / "checkpoints"
    if setting.fault == EQUAL:
        return run(tool, Script(TWICE, DONE))
    if setting.fault == INTERRUPTED:
        return run(tool, Script(CALL, DONE), checkpoints, ask=True)
    if setting.fault == KILLED and setting.framework == "langgraph":
        # With checkpoints, and still before the one of the node that called the tool.
        first = setting.part == 1
        return run(tool, Script(CALL, DONE, killed_after_tools=True) if first else Script(DONE), checkpoints)
    if setting.fault == KILLED:
        return run(tool, Script(CALL, DIE if setting.part == 1 else DONE))
    if setting.framework == "agno":
        # The framework itself tries the whole run again.
        return run(tool, Script(CALL, FAIL, CALL, FAIL, CALL, DONE))
    for _ in range(2):
        with contextlib.suppress(ModelError):
            run(tool, Script(CALL, FAIL))
    return run(tool, Script(CALL, DONE))


if __name__ == "__main__":
    main()
