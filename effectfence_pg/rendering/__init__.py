"""Pictures of a lineage. Pure: a graph in, text out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from effectfence_pg.rendering.graph import Edge, Graph, Key, Node
from effectfence_pg.rendering.picture import html, svg
from effectfence_pg.rendering.text import as_json, dot, facts, mermaid, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMATS: Mapping[str, Callable[[Graph], str]] = {
    "tree": tree,
    "mermaid": mermaid,
    "dot": dot,
    "svg": svg,
    "html": html,
    "json": as_json,
}
"""Every way to draw it, by name."""

__all__ = ["FORMATS", "Edge", "Graph", "Key", "Node", "facts"]
