"""A lineage as text: a tree for people, Mermaid and DOT for other programs, JSON for all of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from effectfence_pg.rendering.graph import COLOURS, Graph, Key, Node, ids, label, printable

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_INDENT = 160
"""Characters."""


def tree(graph: Graph) -> str:
    """A text tree; what was shown before is named again without what is below it."""
    known, steps = {node.key: node for node in graph.nodes}, graph.onward()
    if not graph.nodes:
        return ""
    lines: list[str] = [_words(graph.nodes[0])]
    shown = {graph.nodes[0].key}
    # A stack and no recursion: a chain may be longer than Python's.
    pending = _branches(steps, graph.nodes[0].key, "")
    while pending:
        key, via, prefix, last = pending.pop()
        again = key in shown and steps.get(key)
        lines.append(f"{prefix}{'└── ' if last else '├── '}{_words(known[key])}  ({via}){' ...' if again else ''}")
        if key not in shown:
            shown.add(key)
            # A chain of thousands is a straight line from there on, and not a triangle.
            deeper = prefix + ("    " if last else "│   ") if len(prefix) < MAX_INDENT else prefix
            pending += _branches(steps, key, deeper)
    return "\n".join(lines)


def _branches(steps: Mapping[Key, list[tuple[Key, str]]], key: Key, prefix: str) -> list[tuple[Key, str, str, bool]]:
    onward = steps.get(key, [])
    return [(there, via, prefix, at == len(onward) - 1) for at, (there, via) in reversed(list(enumerate(onward)))]


def _words(node: Node) -> str:
    return printable(f"{node.name}  {node.domain}@{node.seq}  {node.tool} by {node.agent}  {node.short}")


def mermaid(graph: Graph) -> str:
    """A Mermaid flowchart: an arrow goes from what rests to what it rests on."""
    names = ids(graph)
    lines = ["flowchart LR"]
    for node in graph.nodes:
        shown = "<br/>".join(_mermaid_text(text) for text in label(node))
        lines.append(f'    {names[node.key]}["{shown}"]')
    lines += [f"    {names[e.observer]} -->|{e.via}| {names[e.observed]}" for e in graph.edges]
    for node in graph.nodes:
        if node.state != "committed":
            lines.append(f"    style {names[node.key]} fill:{COLOURS.get(node.state, '#ffffff')}")
    return "\n".join(lines)


def _mermaid_text(text: str) -> str:
    """Mermaid reads entities: everything that could end the label or begin markup becomes one."""
    return "".join(c if c.isalnum() or c in " .:,/@_-" else f"#{ord(c)};" for c in text)


def dot(graph: Graph) -> str:
    """A Graphviz digraph."""
    names = ids(graph)
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for node in graph.nodes:
        shown = "\\n".join(_dot_text(text) for text in label(node))
        lines.append(f'  {names[node.key]} [label="{shown}", fillcolor="{COLOURS.get(node.state, "#ffffff")}"];')
    lines += [f'  {names[e.observer]} -> {names[e.observed]} [label="{_dot_text(e.via)}"];' for e in graph.edges]
    return "\n".join([*lines, "}"])


def _dot_text(text: str) -> str:
    return printable(text.replace("\n", " ").replace("\r", " ")).replace("\\", "\\\\").replace('"', '\\"')


def as_json(graph: Graph) -> str:
    """One JSON object."""
    return json.dumps(facts(graph), ensure_ascii=False)


def facts(graph: Graph) -> dict[str, Any]:
    """The graph, ready for JSON."""
    edges = [
        {"observer": list(edge.observer), "observed": list(edge.observed), "via": edge.via} for edge in graph.edges
    ]
    return {
        "root": graph.root,
        "dependents": graph.dependents,
        "nodes": [asdict(node) for node in graph.nodes],
        "edges": edges,
    }
