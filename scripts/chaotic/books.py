"""The books of an external witness: one line for each thing that happened, whatever the database knows of it."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Books:
    """A file that every process appends to."""

    path: str

    def note(self, what: str, **facts: Any) -> None:
        """Write one line; a single write in append mode stays whole beside other writers."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (json.dumps({"what": what, **facts}) + "\n").encode())
        finally:
            os.close(descriptor)

    def lines(self, what: str | None = None) -> Iterator[dict[str, Any]]:
        """The lines of one kind, or all."""
        path = Path(self.path)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            facts = json.loads(line)
            if what in {None, facts["what"]}:
                yield facts

    def counts(self) -> Counter[str]:
        """How many lines there are of each kind."""
        return Counter(line["what"] for line in self.lines())
