"""An external witness: what happened in the world, counted without asking the fence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Witness:
    """A file that every process appends to, one line for each time the effect really happened."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def happened(self, intent: str, **facts: Any) -> None:
        """The effect happens, here and now."""
        line = json.dumps({"intent": intent, "pid": os.getpid(), **facts}) + "\n"
        # One write in append mode is one line, whoever else writes.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            assert os.write(descriptor, line.encode()) == len(line)
        finally:
            os.close(descriptor)

    def lines(self) -> list[dict[str, Any]]:
        """Everything that happened, in order."""
        return [json.loads(line) for line in self._text()]

    def count(self, intent: str | None = None) -> int:
        """How often it happened."""
        return sum(intent in {None, line["intent"]} for line in self.lines())

    def _text(self) -> Iterator[str]:
        if self.path.exists():
            yield from self.path.read_text(encoding="utf-8").splitlines()
