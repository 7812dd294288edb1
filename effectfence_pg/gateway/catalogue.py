"""What the upstream says of its tools. Hints are hints: the policy wins, and a change of them is logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.shared.inbound import x_mcp_header_map

from effectfence_pg.gateway.policy import Action
from effectfence_pg.gateway.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("effectfence_pg.gateway")

SHOWN: Final = 200
NO_SHAPE: Final = Shape(None)


class Catalogue:
    """Annotations and schemas of the tools that were listed so far, by name."""

    def __init__(self) -> None:
        self._hints: dict[str, Mapping[str, Any]] = {}
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._shapes: dict[str, Shape] = {}
        self._complete = False

    def learn(self, tools: Any) -> set[str]:
        """Take in a page of a listing, and say whose it was. What is no description of a tool teaches nothing."""
        named: set[str] = set()
        for tool in _objects(tools):
            name: Any = tool.get("name")
            said: Any = tool.get("annotations")
            hints: Mapping[str, Any] = cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}
            # Hints that are none are none.
            if not isinstance(name, str):
                continue
            named.add(name)
            known = self._hints.get(name)
            if known is not None and known != hints:
                log.warning("the upstream changed its hints about %s from %s to %s", name[:SHOWN], known, hints)
            self._hints[name] = hints
            schema: Any = tool.get("inputSchema")
            self._headers[name] = x_mcp_header_map(schema)
            if self.shape(name).schema != schema:
                self._shapes[name] = Shape(schema)
        return named

    def forget_others(self, listed: set[str]) -> None:
        """These are all there are.

        One that comes back later is another one, and what the old one said does not hold for it.
        """
        self._complete = True
        for name in self._hints.keys() - listed:
            log.warning("the upstream has no tool %s any more; its hints were %s", name[:SHOWN], self._hints.pop(name))
            self._headers.pop(name, None)
            self._shapes.pop(name, None)

    def lacks(self, tool: str) -> bool:
        """Whether all tools were listed, and this one was not."""
        return self._complete and tool not in self._hints

    def shape(self, tool: str) -> Shape:
        """What it takes; anything, when nothing is known."""
        return self._shapes.get(tool, NO_SHAPE)

    def headers(self, tool: str) -> dict[tuple[str, ...], str]:
        """Which arguments a modern HTTP upstream wants to see in headers."""
        return self._headers.get(tool, {})

    def action(self, tool: str) -> Action:
        """Only what is marked read-only is no effect; a tool that was never listed is one."""
        hints = self._hints.get(tool)
        return Action.OBSERVE if hints is not None and hints.get("readOnlyHint") is True else Action.FENCE


def _objects(tools: Any) -> list[dict[str, Any]]:
    found: list[Any] = cast("list[Any]", tools) if isinstance(tools, list) else []
    return [cast("dict[str, Any]", tool) for tool in found if isinstance(tool, dict)]
