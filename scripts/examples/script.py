"""A model that plays a script: what the examples put in the place of a real one, so that they need no network."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

CALL, TWICE, FAIL, DIE, DONE = "call", "call twice", "fail", "die", "done"
"""Call the tool; call it twice in one message; answer 500; the process is killed; answer with text."""

ORDER = {"order_id": "7"}


class ModelError(Exception):
    """What the provider of a model answers now and then."""


class Script:
    """One move for every request to the model. Each tool call has an id of its own, as those of real models do."""

    def __init__(self, *moves: str, killed_after_tools: bool = False) -> None:
        self._moves: Iterator[str] = iter(moves)
        self._calls = 0
        self._killed_after_tools = killed_after_tools

    def between(self) -> None:
        """Between a tool's return and the framework's record of it."""
        if self._killed_after_tools:
            os.kill(os.getpid(), signal.SIGKILL)

    def next_calls(self) -> list[str]:
        """The ids of the tool calls of the next message; none when it is the answer."""
        move = next(self._moves)
        if move == FAIL:
            raise ModelError("500 Internal Server Error")
        if move == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        ids = [f"call_{self._calls + n}" for n in range({CALL: 1, TWICE: 2}.get(move, 0))]
        self._calls += len(ids)
        return ids
