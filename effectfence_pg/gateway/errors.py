"""Refusals of the gateway's own, and what an upstream's answer means for an effect."""

# Refusals are named for what happened, not for being errors: the names are the stable codes.
# ruff: noqa: N818

from __future__ import annotations

from typing import Any, ClassVar

from effectfence_pg.errors import FenceError


class UpstreamUnavailable(FenceError):
    """There is no connection to the upstream to be had, so nothing was admitted and nothing sent."""

    reason: str

    template: ClassVar[str] = "the upstream server cannot be reached: {reason}"
    retryable: ClassVar[bool] = True
    advice: ClassVar[str] = "Nothing was called: wait, then make the same call again."


class UnknownTool(FenceError):
    """The upstream lists no such tool, so nothing was admitted and nothing sent."""

    tool: str

    template: ClassVar[str] = "the upstream server lists no tool {tool!r}"
    advice: ClassVar[str] = "Nothing was called: list the tools, and call one of them by its exact name."


class InvalidArguments(FenceError):
    """An argument is missing or not what the tool takes, so nothing was admitted and nothing sent."""

    tool: str
    field: str
    reason: str

    template: ClassVar[str] = "{tool}: {field}: {reason}"
    advice: ClassVar[str] = "Nothing was called and nothing is on record: correct the argument, then call again."


class InputRequired(FenceError):
    """The upstream asks the client something within its answer, and the client's version of the protocol has no such thing."""

    tool: str

    template: ClassVar[str] = "{tool} asks for input before it acts, which this client cannot give"
    advice: ClassVar[str] = "Nothing is decided: call it from a client that can answer, or with what it asks for."


class NoEffect(Exception):
    """The upstream's answer says that nothing happened: the attempt is released, and the answer handed on."""

    def __init__(self, answer: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        super().__init__("answered without an effect")
        self.answer = answer
        self.error = error


class Lost(Exception):
    """The upstream was gone after the call had been sent: the outcome is unknown."""
