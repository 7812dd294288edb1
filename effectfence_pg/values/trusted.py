"""Frozen values from facts that were validated before, at a fraction of what validation costs."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_SET: Final = object.__setattr__


@cache
def _all_fields(kind: type[BaseModel]) -> set[str]:
    """One set for every frozen value of a kind: nobody can set a field of one."""
    return set(kind.model_fields)


def trusted(kind: type[Model], facts: dict[str, Any], kept: dict[str, Any] | None = None) -> Model:
    """Build a model from all of its fields and what it keeps beside them, unchecked. Both become its own."""
    model = kind.__new__(kind)
    _SET(model, "__dict__", facts)
    _SET(model, "__pydantic_fields_set__", _all_fields(kind))
    _SET(model, "__pydantic_extra__", None)
    _SET(model, "__pydantic_private__", kept)
    return model
