"""The graph that is drawn: nodes, edges, and how they are named."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, int]
"""An intent and its attempt."""

SHOWN_CHARACTERS = 40
COLOURS = {
    "committed": "#d9f2e1",
    "executed": "#dbe9fb",
    "in_flight": "#fdf3d0",
    "failed": "#fadbd8",
    "aborted": "#fadbd8",
    "released": "#ececec",
    "superseded": "#ececec",
}


@dataclass(frozen=True)
class Node:
    """An effect of a lineage; `certificate` is None when it has none."""

    intent: str
    attempt: int
    state: str
    certificate: str | None
    domain: str
    seq: int
    tool: str
    agent: str
    depth: int

    @property
    def key(self) -> Key:
        """What edges name it by."""
        return (self.intent, self.attempt)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.intent if self.attempt == 1 else f"{self.intent} #{self.attempt}"

    @property
    def short(self) -> str:
        """The beginning of the certificate's hash, else the state."""
        return self.state if self.certificate is None else self.certificate[:12]


class Edge(NamedTuple):
    """One effect observed another."""

    observer: Key
    observed: Key
    via: str


@dataclass(frozen=True)
class Graph:
    """A lineage: nodes by depth, the certificate it was asked of first, and every edge between them."""

    root: str
    dependents: bool
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def onward(self) -> Mapping[Key, list[tuple[Key, str]]]:
        """The next nodes of each node, away from the root, with how they were observed."""
        steps: dict[Key, list[tuple[Key, str]]] = defaultdict(list)
        for edge in self.edges:
            here, there = (edge.observed, edge.observer) if self.dependents else (edge.observer, edge.observed)
            steps[here].append((there, edge.via))
        return steps


def label(node: Node) -> tuple[str, str, str]:
    """Three short lines about a node."""
    return (cut(node.name), cut(f"{node.tool} by {node.agent}"), cut(f"{node.domain}@{node.seq} {node.short}"))


def cut(text: str) -> str:
    """At most so many characters."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def printable(text: str) -> str:
    """XML has no control characters, not even escaped; and a terminal obeys them."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def ids(graph: Graph) -> dict[Key, str]:
    """A short name for each node, safe in every language of pictures."""
    return {node.key: f"n{number}" for number, node in enumerate(graph.nodes)}
