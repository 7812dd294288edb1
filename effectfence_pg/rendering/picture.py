"""A lineage as a picture: SVG, and a page around it that loads nothing."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from effectfence_pg.rendering.graph import COLOURS, Graph, Key, Node, label, printable

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 230, 58, 26, 46, 16
"""Of the boxes, pixels."""


def svg(graph: Graph) -> str:
    """A picture in which every depth is a row."""
    places = _places(graph)
    width = max((x for x, _ in places.values()), default=0) + WIDTH + MARGIN
    height = max((y for _, y in places.values()), default=0) + HEIGHT + MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>'
        ),
        *(_line(places[edge.observer], places[edge.observed], edge.via) for edge in graph.edges),
        *(_box(node, places[node.key]) for node in graph.nodes),
        "</svg>",
    ]
    return "\n".join(parts)


def _places(graph: Graph) -> dict[Key, tuple[int, int]]:
    row: dict[int, int] = defaultdict(int)
    places: dict[Key, tuple[int, int]] = {}
    for node in graph.nodes:
        places[node.key] = (MARGIN + row[node.depth] * (WIDTH + GAP_X), MARGIN + node.depth * (HEIGHT + GAP_Y))
        row[node.depth] += 1
    return places


def _line(observer: tuple[int, int], observed: tuple[int, int], via: str) -> str:
    down = observed[1] >= observer[1]
    begin = (observer[0] + WIDTH // 2, observer[1] + (HEIGHT if down else 0))
    end = (observed[0] + WIDTH // 2, observed[1] + (0 if down else HEIGHT))
    middle = ((begin[0] + end[0]) // 2 + 4, (begin[1] + end[1]) // 2 + 4)
    return (
        f'<line x1="{begin[0]}" y1="{begin[1]}" x2="{end[0]}" y2="{end[1]}" stroke="#555" marker-end="url(#tip)"/>'
        f'<text x="{middle[0]}" y="{middle[1]}" fill="#555" font-size="10">{escape(printable(via))}</text>'
    )


def _box(node: Node, place: tuple[int, int]) -> str:
    x, y = place
    colour = COLOURS.get(node.state, "#ffffff")
    texts = "".join(
        f'<text x="{x + 8}" y="{y + 18 + 16 * line}" font-weight="{weight}">{escape(printable(text))}</text>'
        for line, (text, weight) in enumerate(zip(label(node), ("bold", "normal", "normal"), strict=True))
    )
    title = escape(printable(f"{node.name} {node.state} {node.certificate or ''}"))
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colour}" '
        f'stroke="#555"/>{texts}</g>'
    )


def html(graph: Graph) -> str:
    """A page with the picture and a table; it loads nothing."""
    names = ("depth", "intent", "attempt", "state", "domain", "seq", "tool", "agent", "certificate")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(printable(str(getattr(node, name))))}</td>" for name in names) + "</tr>"
        for node in graph.nodes
    )
    direction = "What rests on" if graph.dependents else "What it rests on:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Lineage</title>\n'
        "<style>body{font-family:sans-serif}td,th{padding:2px 8px;text-align:left;font-size:13px}</style></head>\n"
        f"<body><h1>{direction} {escape(graph.root[:12])}</h1>\n{svg(graph)}\n"
        f"<table><tr>{head}</tr>\n{body}\n</table></body></html>"
    )
