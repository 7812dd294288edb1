"""Formats of a policy: what could never be filled in is refused when the policy is read, and not call by call."""

from __future__ import annotations

import re
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.names import MAX_NAME_BYTES, MAX_NAMESPACE_BYTES, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH: Final = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[[^.\[\]]+\])*")
_PARTS: Final = re.compile(r"[^.\[\]]+")


def fields_of(text: str) -> Iterator[list[str]]:
    """The names in each field of a format: of `{order.lines[0]}` order, lines and 0."""
    return (_PARTS.findall(name) for _, name, _, _ in Formatter().parse(text) if name is not None)


def _format(text: str) -> str:
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"is no format: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (not _PATH.fullmatch(name) or spec or conversion):
            raise ValueError("a field is names, such as {order_id} or {order.lines[0].id}, without anything else")
    return _short(text, MAX_NAME_BYTES)


def _short(text: str, max_bytes: int) -> str:
    """Whatever is filled in, what stands around it has to be a name's."""
    around = "".join(literal for literal, _, _, _ in Formatter().parse(text))
    try:
        check_name(around or "-", field="", max_bytes=max_bytes)
    except InvalidRequest as error:
        raise ValueError(error.reason) from None
    return text


def _of_arguments(text: str) -> str:
    for first, *_ in fields_of(text):
        if first.isdigit():
            raise ValueError(f"arguments have names, and {first} is a number")
    return text


def _of_client(text: str) -> str:
    for root, *keys in fields_of(text):
        known = {
            "client": keys in (["name"], ["version"]),
            "meta": bool(keys) and not keys[0].isdigit(),
            "header": len(keys) == 1 and not keys[0].isdigit(),
        }
        if not known.get(root):
            raise ValueError(
                "fields are client.name, client.version, meta.KEY and header.NAME: a client says nothing else"
            )
    return text


def _tenant(text: str) -> str:
    if len(list(fields_of(text))) > 1:
        raise ValueError("has more than one field: 'a-b' with 'c' and 'a' with 'b-c' would be one tenant")
    return _short(text, MAX_NAMESPACE_BYTES)


_Format = Annotated[str, Field(strict=True, min_length=1, max_length=1024), AfterValidator(_format)]
OfArguments = Annotated[_Format, AfterValidator(_of_arguments)]
OfClient = Annotated[_Format, AfterValidator(_of_client)]
Tenant = Annotated[OfClient, AfterValidator(_tenant)]
