"""Refusals as messages of a tool, for frameworks that hand a tool's answer to a model."""

from __future__ import annotations

from effectfence_pg.errors import FenceError


def tool_message(error: FenceError) -> str:
    """One refusal as text that a model can act on: the stable code, what is the matter, and what to do now.

    Raises:
        TypeError: It is no refusal. What a tool itself raised is not to be read as an answer of the fence.
    """
    if not isinstance(error, FenceError):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{type(error).__name__} is no refusal of the fence"
        raise TypeError(msg)
    return f"[{error.code}] {error}. {error.advice}"
