"""A naive fence, to compare with: every effect is judged by its own fence, and by nothing else.

It is as careful as one can be about a single effect: one attempt per intent, a number per domain that is given once, read
sets compared with the numbers at admission and again at commit. What it does not know is who observed whom.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from threading import Lock


@dataclass(slots=True)
class _Effect:
    branch: str | None
    domain: str
    seq: int
    read_set: dict[str, int]
    state: str = "in_flight"


class NaiveFence:
    """In memory; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers: Counter[str] = Counter()
        self._effects: dict[str, _Effect] = {}

    def observe(self, *domains: str) -> dict[str, int]:
        """The number of each domain."""
        with self._lock:
            return {domain: self._numbers[domain] for domain in domains}

    def prepare(self, intent: str, domain: str, *, branch: str | None, read_set: dict[str, int]) -> bool:
        """Admit an intent that is not on record, if nothing that it read has moved."""
        with self._lock:
            if intent in self._effects or self._moved(read_set):
                return False
            self._numbers[domain] += 1
            self._effects[intent] = _Effect(branch, domain, self._numbers[domain], dict(read_set))
            return True

    def observe_late(self, intent: str, read_set: dict[str, int]) -> bool:
        """Add to the read set of an effect in flight; when something has moved, it is given up."""
        with self._lock:
            effect = self._effects[intent]
            if effect.state != "in_flight" or self._moved(read_set):
                effect.state = "aborted"
                return False
            effect.read_set |= read_set
            return True

    def hold(self, intent: str) -> None:
        """The tool has run, and the commit is left to whoever decides about the branch."""
        with self._lock:
            effect = self._effects[intent]
            if effect.state == "in_flight":
                effect.state = "held"

    def commit(self, intent: str) -> bool:
        """Commit an effect whose own fence is valid: it is held, and nothing that it read has moved."""
        with self._lock:
            effect = self._effects.get(intent)
            if effect is None:
                return False
            if effect.state == "held":
                # The own domain is compared with the number that this effect took in it.
                others = {domain: seq for domain, seq in effect.read_set.items() if domain != effect.domain}
                effect.state = "aborted" if self._moved(others) else "committed"
            return effect.state == "committed"

    def roll_back(self, branch: str) -> list[str]:
        """Give up what a branch has not committed; those of it that had run, the last one first."""
        with self._lock:
            fallen: list[str] = []
            for intent, effect in self._effects.items():
                if effect.branch == branch and effect.state in {"in_flight", "held"}:
                    if effect.state == "held":
                        fallen.append(intent)
                    effect.state = "aborted"
            return fallen[::-1]

    def committed(self) -> set[str]:
        """Every intent that is committed."""
        with self._lock:
            return {intent for intent, effect in self._effects.items() if effect.state == "committed"}

    def _moved(self, read_set: dict[str, int]) -> bool:
        return any(self._numbers[domain] != seq for domain, seq in read_set.items())
