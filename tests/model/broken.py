"""For every rule a small configuration in which leaving the rule out brings a violation back."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.choices import Configuration
from tests.model.shorthand import may
from tests.model.world import Plan


class Broken(NamedTuple):
    rule: str
    invariant: str
    case: Configuration
    beside: tuple[str, ...] = ()
    """Rules that have to be off as well, because they alone keep the violation away."""


def small(name: str, plans: tuple[Plan, ...], *kinds: str, depth: int, **more) -> Configuration:
    return Configuration(name, plans, may(*kinds), depth, **more)
