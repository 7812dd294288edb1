"""How many executions a tool's answers prove, looked at from outside.

That answers differ proves nothing: one execution and eleven times "already exists" differ, and so do times, counters and the
ids of requests. What proves something is what the server itself calls an id, when everything else in the answers says the same:
two values of it are two things that were made.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

LEFT_OUT: Final = "*"
MAX_LINE: Final = 2000
"""Characters of a line of text in which ids are looked for."""
IDS: Final = frozenset({"id", "ids", "uuid", "guid"})
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LABELLED: Final = re.compile(
    r"(?<![A-Za-z_-])([A-Za-z][A-Za-z_-]*(?: [A-Za-z][A-Za-z_-]*)?)[\"'`*]*(?: ?[:=] ?| #| )[\"'`*]*([\w-]*\d[\w-]*)"
)
_DIGIT: Final = re.compile(r"\d")


def _words(name: str) -> list[str]:
    """Of `chargeId`, `charge_id`, `Charge ID`: charge and id."""
    return [word.lower() for word in _WORDS.findall(name)]


OF_THE_ANSWER: Final = frozenset(
    _words(
        "attempt call client connection container correlation host instance invocation log node nonce pod process req request "
        "response retry server session span thread trace worker"
    )
)
"""Whose ids may be new in every answer, however often the tool ran."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What answers prove.

    Attributes:
        executions: At least how often the tool ran; 0 when they prove nothing.
        identifier: What the server calls the value that was another one each time.
    """

    executions: int = 0
    identifier: str | None = None


NOTHING: Final = Proof()


def proven(answers: Iterable[Any], identifier: str | None = None) -> Proof:
    """The executions that the answers of identical calls prove, errors left out.

    Args:
        answers: What was answered, as JSON.
        identifier: What every execution makes anew, by its name, when somebody knows; what is called an id otherwise.
    """
    read: list[_Reading] = []
    outlines: list[Any] = []
    for answer in answers:
        read.append(_Reading(identifier))
        try:
            outlines.append(read[-1].outline(answer))
        except RecursionError:
            return NOTHING
    if any(outline != outlines[0] for outline in outlines):
        return NOTHING
    values: dict[tuple[Any, ...], set[str]] = {}
    names: dict[tuple[Any, ...], str] = {}
    for reading in read:
        names |= reading.names
        for place, value in reading.found.items():
            values.setdefault(place, set()).add(value)
    most = max(values, key=lambda place: len(values[place]), default=None)
    if most is None or len(values[most]) < 2:  # noqa: PLR2004 (one value is no second execution)
        return NOTHING
    return Proof(len(values[most]), names[most])


@dataclass(slots=True)
class _Reading:
    """One answer: the ids in it by their place, and what is left without them and without numbers and times."""

    wanted: str | None
    found: dict[tuple[Any, ...], str] = field(default_factory=dict[tuple[Any, ...], str])
    names: dict[tuple[Any, ...], str] = field(default_factory=dict[tuple[Any, ...], str])

    def outline(self, value: Any, *place: Any) -> Any:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: LEFT_OUT if key == "_meta" else self.outline(item, *place, key) for key, item in items}
        if isinstance(value, list):
            return [self.outline(item, *place, number) for number, item in enumerate(cast("list[Any]", value))]
        if value is None or isinstance(value, bool):
            return value
        keys = [part for part in place if isinstance(part, str)]
        around = [word for key in keys[:-1] for word in _words(key)]
        if keys and isinstance(value, str | int) and self._names_one(keys[-1], around):
            self._keep(place, keys[-1], str(value))
            return LEFT_OUT
        return self._text(value, around, place) if isinstance(value, str) else LEFT_OUT

    def _text(self, text: str, around: list[str], place: tuple[Any, ...]) -> Any:
        if text.lstrip().startswith(("{", "[")):
            try:
                return self.outline(json.loads(text), *place)
            except ValueError:
                pass
        return [self._line(line, around, (*place, number)) for number, line in enumerate(text.split("\n"))]

    def _line(self, line: str, around: list[str], place: tuple[Any, ...]) -> str:
        before, end = list(around), 0
        for number, labelled in enumerate(_LABELLED.finditer(line) if len(line) <= MAX_LINE else ()):
            before += _words(line[end : labelled.start()])
            if self._names_one(labelled[1], before):
                self._keep((*place, number), labelled[1], labelled[2])
            before += _words(labelled[1])
            end = labelled.end()
        return " ".join(LEFT_OUT if _DIGIT.search(word) else word for word in line.split())

    def _keep(self, place: tuple[Any, ...], name: str, value: str) -> None:
        self.found[place] = value
        self.names[place] = name

    def _names_one(self, name: str, around: list[str]) -> bool:
        words = _words(name)
        if self.wanted is not None:
            wanted = _words(self.wanted)
            return name == self.wanted or (bool(wanted) and words[-len(wanted) :] == wanted)
        return bool(words) and words[-1] in IDS and OF_THE_ANSWER.isdisjoint([*around, *words])
