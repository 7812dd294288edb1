"""Statements in the form that the server takes, compiled once, with the wire types of their parameters fixed."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from psycopg.types.numeric import Float8, Int8
from sqlalchemy import Double, Integer
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from effectfence_pg.sql.statements import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")


class Compiled:
    """A statement as the server takes it: its text, the names of its parameters in order, and what fixes their types."""

    __slots__ = ("_binders", "_pick", "names", "text")

    def __init__(self, statement: Any) -> None:
        result = statement.compile(dialect=_DIALECT)
        self.text = str(result).encode()
        self.names: tuple[str, ...] = tuple(result.positiontup or ())
        # Of one name it would pick a value and not a list of one.
        names: Any = self.names
        self._pick = cast("Any", itemgetter(*names)) if len(names) > 1 else None
        binders = ((at, _binder(PARAMETERS[name])) for at, name in enumerate(self.names))
        self._binders = tuple((at, bind) for at, bind in binders if bind is not None)

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The values of the parameters, in order."""
        values = list(self._pick(given)) if self._pick else [given[name] for name in self.names]
        for at, bind in self._binders:
            values[at] = bind(values[at])
        return values


@lru_cache(maxsize=256)
def compiled(statement: Any) -> Compiled:
    """The statement in its compiled form, once for each."""
    return Compiled(statement)


def _int8(value: Any) -> Any:
    return None if value is None else Int8(value)


def _int8s(values: Any) -> Any:
    return None if values is None else [Int8(value) for value in values]


def _binder(kind: Any) -> Callable[[Any], Any] | None:
    """Fix the wire type of a parameter, so that a statement is prepared once and not once per magnitude of a number."""
    if isinstance(kind, ARRAY) and isinstance(cast("Any", kind).item_type, Integer):
        return _int8s
    if isinstance(kind, Integer):
        return _int8
    return Float8 if isinstance(kind, Double) else None
