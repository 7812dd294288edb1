"""Names: what an intent, a domain, a tool, an agent, a branch and a namespace may be called."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from effectfence_pg.errors import InvalidRequest

MAX_NAME_BYTES = 1_024
"""Bytes of UTF-8 of an intent, domain, tool, agent or branch."""

MAX_NAMESPACE_BYTES = 128
"""Bytes of UTF-8 of a namespace."""


def _checked(text: str, max_bytes: int) -> str:
    # The characters are counted first: a megabyte is refused without being encoded.
    size = len(text)
    if not size:
        raise ValueError("is empty")
    if size <= max_bytes and not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise ValueError("contains a lone surrogate") from None
    if size > max_bytes:
        raise ValueError(f"is longer than {max_bytes} bytes of UTF-8")
    if "\0" in text:
        raise ValueError("contains U+0000")
    return text


def _name(text: str) -> str:
    return _checked(text, MAX_NAME_BYTES)


def _namespace(text: str) -> str:
    return _checked(text, MAX_NAMESPACE_BYTES)


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("contains a lone surrogate") from None
    return text


Text = Annotated[str, Field(strict=True), AfterValidator(_text)]
"""Any text that UTF-8 can hold: a record of the past is not held to the limits of today."""

Name = Annotated[str, Field(strict=True), AfterValidator(_name)]
Namespace = Annotated[str, Field(strict=True), AfterValidator(_namespace)]


def check_name(value: object, *, field: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Return `value` when it is a usable name: 1 to `max_bytes` bytes of UTF-8, no U+0000, no lone surrogate.

    Raises:
        InvalidRequest: It is not. The error's `field` is the one given.
    """
    if not isinstance(value, str):
        raise InvalidRequest(field=field, reason=f"is of type {type(value).__name__}, not str")
    try:
        return _checked(str.__str__(value), max_bytes)
    except ValueError as error:
        raise InvalidRequest(field=field, reason=str(error)) from None
