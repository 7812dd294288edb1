"""What a tool takes, by the schema that the upstream lists for it: a call that it could not take is found out beforehand.

Only what is certain is a fault. A schema that is none, that refers to others, or that would take long says nothing, and the
upstream judges by itself, as it does about patterns: nothing could interrupt one that runs away.
"""

from __future__ import annotations

import logging
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import jsonschema
import referencing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Its types are in part unknown, and what is done here with them is little.
_lib: Final[Any] = jsonschema
log = logging.getLogger("effectfence_pg.gateway")

MAX_NODES: Final = 2_000
"""Objects and lists of a schema: a larger one says nothing. To compile this many takes half a second, once."""
MAX_STEPS: Final = 20_000
"""Keywords that are looked at for one call: a tenth of a second."""
MAX_FAULTS: Final = 100
SHOWN: Final = 200
UNJUDGED: Final = frozenset({"pattern", "multipleOf", "uniqueItems", "format"})
"""Left to the upstream: without limit, or judged by every library in its own way, such as 19.99 as a multiple of 0.01."""
TURNING: Final = frozenset(
    {"not", "disallow", "oneOf", "if", "contains", "unevaluatedProperties", "unevaluatedItems", "patternProperties"}
)
"""Around these, what is left out allows less instead of more."""


class Shape:
    """What one tool takes.

    Attributes:
        schema: As it was listed.
    """

    schema: Any

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._judge: Callable[[Any], Iterable[Any]] | None = None
        self._compiled = False

    def defaults(self) -> dict[str, Any]:
        """What an argument is that is not given, where the schema says so."""
        schema = self.schema
        properties: Any = cast("dict[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
        named = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        return {name: said["default"] for name, said in _objects(named) if "default" in said}

    def fault(self, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """The path to what is wrong with these arguments, and why; None when nothing is for certain."""
        try:
            if not self._compiled:
                self._compiled = True
                self._judge = _judge(self.schema)
            if self._judge is None:
                return None
            _steps.left = MAX_STEPS
            found = _lib.exceptions.best_match(islice(self._judge(arguments), MAX_FAULTS))
            return None if found is None else _told(found)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with a schema must not keep a call from its tool)
            log.debug("a schema says nothing about its arguments: %s", type(error).__name__)
            return None


def _objects(named: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((name, cast("dict[str, Any]", said)) for name, said in named.items() if isinstance(said, dict))


class _Steps:
    """How many more keywords may be looked at; a judgement is not interrupted by another one."""

    left = 0


_steps: Final = _Steps()


class _TooMany(Exception):  # noqa: N818 (it is no error of anybody's)
    """It takes too long."""


def _judge(schema: Any) -> Callable[[Any], Iterable[Any]] | None:
    if not isinstance(schema, dict) or not _simple(schema):  # pyright: ignore[reportUnknownArgumentType]
        return None
    kind: Any = _lib.Draft202012Validator
    if "$schema" in schema:
        kind = _lib.validators.validator_for(schema, default=None)
    if kind is None:
        return None
    # Without formats, for one of them is to compile every pattern.
    kind.check_schema(schema, format_checker=_lib.FormatChecker(formats=()))
    # With a registry of its own nothing is ever fetched.
    return _counting(kind)(schema, registry=cast("Any", referencing).Registry()).iter_errors


@cache
def _counting(kind: Any) -> Any:
    keywords = {name: _counted(keyword) for name, keyword in kind.VALIDATORS.items()}
    return _lib.validators.extend(kind, keywords | dict.fromkeys(UNJUDGED & keywords.keys(), _nothing))


def _counted(keyword: Any) -> Any:
    def judged(*given: Any) -> Any:
        _steps.left -= 1
        if _steps.left < 0:
            raise _TooMany
        return keyword(*given)

    return judged


def _nothing(*given: Any) -> tuple[()]:
    del given
    return ()


def _simple(schema: dict[str, Any]) -> bool:
    """Whether it is small, and says no less with what is left to the upstream left out."""
    words: set[str] = set()
    nodes: list[Any] = [schema]
    for _ in range(MAX_NODES + 1):
        if not nodes:
            return words.isdisjoint(TURNING) or (words.isdisjoint(UNJUDGED) and "patternProperties" not in words)
        node = nodes.pop()
        if isinstance(node, dict):
            words |= cast("dict[str, Any]", node).keys()
        inner: Any = cast("dict[str, Any]", node).values() if isinstance(node, dict) else node
        nodes += (part for part in inner if isinstance(part, dict | list))
    return False


def _told(found: Any) -> tuple[str, str]:
    wanted: Any = found.validator_value
    path = "arguments" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.absolute_path)
    if found.validator == "required" and type(wanted) is list:
        names = cast("list[str]", wanted)
        missing = next((name for name in names if name not in found.instance), None)
        if missing is not None:
            return _short(f"{path}.{missing}"), "is missing"
    if found.validator == "additionalProperties" and wanted is False:
        known = found.schema.get("properties", {})
        other = next((name for name in found.instance if name not in known), None)
        if other is not None:
            return _short(f"{path}.{other}"), "is no argument of it"
    return _short(path), _short(str(found.message))


def _short(text: str) -> str:
    """What is allowed stands at the end, behind what was given."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
