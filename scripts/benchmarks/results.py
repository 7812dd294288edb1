"""What a measurement says, the target it is held against, and how much of everything a run does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.databases import Bench

MODES: Final = ("on", "off")
"""The values of synchronous_commit that are measured."""

FIGURE_NAMES: Final = {"us": "median_us", "ms": "median_ms", "per second": "per_second", "bytes": "bytes"}
"""The JSON name of the figure, by its unit; `value` for every other unit."""

COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}


class BenchFailedError(Exception):
    """What was measured did not do what it should: no figure would mean anything."""


@dataclass(frozen=True)
class Target:
    """A limit for the ratio, or for the figure of a result that has no ratio."""

    sign: str
    limit: float
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:.0%}".replace("%", " %") if self.percent else f"{self.sign} {self.limit}"

    def met(self, value: float) -> bool:
        """Whether the value is within the limit."""
        return COMPARE[self.sign](value, self.limit)


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
        group: The group it belongs to.
        name: What was measured.
        synchronous_commit: The setting it was measured with.
        unit: What the figure is in.
        figure: The median over the repetitions.
        floor: The name of the result that it is compared with.
        ratio: The median of the repetitions' ratios to the floor; each is taken within one repetition.
        target: The limit, shown and never enforced.
        facts: More figures, for the JSON form; those about CPU are in the table as well.
    """

    group: str
    name: str
    synchronous_commit: str
    unit: str
    figure: float
    floor: str | None = None
    ratio: float | None = None
    target: Target | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.target.met(self.figure if self.ratio is None else self.ratio)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "group": self.group,
            "name": self.name,
            "synchronous_commit": self.synchronous_commit,
            "unit": self.unit,
            FIGURE_NAMES.get(self.unit, "value"): round(self.figure, 1),
            "floor": self.floor,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
            **{name: round(fact, 3) if isinstance(fact, float) else fact for name, fact in self.facts.items()},
        }


@dataclass(frozen=True)
class Scale:
    """How much a run does. The defaults are the full run; a quick one only shows that everything works.

    Attributes:
        repetitions: How often everything is measured; the figures are medians over these.
        storms: How often the storm is run in each mode, for it takes seconds.
        blocks: Rounds of a repetition; in each of them every case has its turn.
        block_operations: Operations of one turn.
        warm_up_operations: Operations before the clock starts: twelve, and every statement is prepared and the server
            has chosen its plan.
        window_seconds: How long the threads work in each repetition.
        threads: How many.
        requests_ahead: Requests that each thread has made before the clock starts.
        stored_intents: Intents on record before the threads start.
        attempts: Attempts of the storm.
        storm_processes: Its processes.
        storm_threads: The threads of each of them.
        equal_rounds: Rounds of twenty equal calls from four processes.
        closure_members: Effects of the longest chain; a tenth of it shows how cost grows.
        closure_checks: Commits that walk such a chain, in each repetition.
        audited_certificates: Certificates that are recomputed.
        chain_effects: How many of them observed each other one by one.
        gateway_rounds: Rounds of twelve identical calls through gateway processes.
        gateways: Through how many of them.
    """

    repetitions: int = 5
    storms: int = 3
    blocks: int = 8
    block_operations: int = 20
    warm_up_operations: int = 12
    window_seconds: float = 1.0
    threads: int = 16
    requests_ahead: int = 500
    stored_intents: int = 1000
    attempts: int = 1000
    storm_processes: int = 4
    storm_threads: int = 25
    equal_rounds: int = 200
    closure_members: int = 10_000
    closure_checks: int = 5
    audited_certificates: int = 100_000
    chain_effects: int = 10_000
    gateway_rounds: int = 100
    gateways: tuple[int, ...] = (1, 2, 4)


QUICK: Final = Scale(
    repetitions=2,
    storms=1,
    blocks=2,
    block_operations=10,
    warm_up_operations=7,
    window_seconds=0.2,
    requests_ahead=100,
    stored_intents=100,
    attempts=100,
    storm_processes=2,
    equal_rounds=5,
    closure_members=1000,
    closure_checks=3,
    audited_certificates=2_000,
    chain_effects=500,
    gateway_rounds=5,
)

Group = Callable[["Bench"], Generator[Result]]
"""A group measures on a server and yields its results."""


def median_ratio(values: list[float], floors: list[float]) -> float:
    """The median of the ratios within each repetition: what slows the machine down slows down both."""
    return median(value / floor for value, floor in zip(values, floors, strict=True) if floor)
