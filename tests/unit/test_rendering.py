"""Pictures of a lineage: every format shows every effect, and no name can break out of its label."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from effectfence_pg.rendering import FORMATS, Edge, Graph, Node

NASTY = 'x"]; click <script>alert(1)</script> & \\" \n\r\u0001 | {} `'


def node(intent: str, depth: int, *, state: str = "committed", attempt: int = 1) -> Node:
    certificate = f"{depth:064x}" if state == "committed" else None
    return Node(intent, attempt, state, certificate, f"of:{intent}", 0, "charge", "agent-a", depth)


def graph(*names: str, dependents: bool = False) -> Graph:
    """A chain of these names, with a shortcut from the first to the last."""
    nodes = tuple(node(name, depth) for depth, name in enumerate(names))
    pairs = [*itertools.pairwise(names), *([(names[0], names[-1])] if len(names) > 2 else [])]
    edges = [Edge((a, 1), (b, 1), "read_set") for a, b in pairs]
    if dependents:
        edges = [Edge(edge.observed, edge.observer, edge.via) for edge in edges]
    return Graph(nodes[0].certificate or "", dependents, nodes, tuple(edges))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_every_effect_and_draws_the_same_twice(name: str) -> None:
    drawn = FORMATS[name](graph("charge", "plan", "config", "quote"))
    assert all(intent in drawn for intent in ("charge", "plan", "config", "quote"))
    assert drawn == FORMATS[name](graph("charge", "plan", "config", "quote"))


def test_the_tree_says_each_thing_once_and_marks_what_was_shown() -> None:
    lines = FORMATS["tree"](graph("charge", "plan", "quote")).splitlines()
    assert [line.partition("  ")[0] for line in lines] == ["charge", "├── plan", "│", "└── quote"]
    assert lines[2].startswith("│   └── quote")
    again = FORMATS["tree"](graph("a", "b", "c", "d")).splitlines()
    assert len(again) == 5


def test_a_tree_of_what_rests_on_it_goes_the_other_way() -> None:
    lines = FORMATS["tree"](graph("quote", "plan", "charge", dependents=True)).splitlines()
    assert [line.split("  ")[0].lstrip("│├└─ ") for line in lines][:2] == ["quote", "plan"]


def test_a_chain_of_ten_thousand_is_drawn() -> None:
    names = [f"step:{n}" for n in range(10_000)]
    for name, draw in FORMATS.items():
        assert draw(graph(*names)).count("step:9999") >= 1, name


def test_no_name_ends_its_label_in_mermaid_or_dot() -> None:
    plain, nasty = graph("charge", "plan"), graph(NASTY, "plan")
    for name in ("mermaid", "dot"):
        before, after = FORMATS[name](plain), FORMATS[name](nasty)
        assert len(after.splitlines()) == len(before.splitlines())
        assert "<script>" not in after or name == "dot"
    line = next(line for line in FORMATS["mermaid"](nasty).splitlines() if line.startswith("    n0["))
    assert line.count('"') == 2
    assert "<script" not in line
    label = next(line for line in FORMATS["dot"](nasty).splitlines() if line.startswith("  n0 "))
    assert label.replace('\\"', "").replace("\\\\", "").count('"') == 4


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_svg_is_xml_and_html_has_no_tag_of_anybody_elses() -> None:
    root = ET.fromstring(FORMATS["svg"](graph(NASTY, "plan")))
    assert root.tag.endswith("svg")
    tags = Tags()
    tags.feed(FORMATS["html"](graph(NASTY, "plan")))
    assert "script" not in tags.seen
    assert tags.seen.count("tr") == 3


def test_json_is_the_graph() -> None:
    shown = json.loads(FORMATS["json"](graph(NASTY, "plan")))
    assert [entry["intent"] for entry in shown["nodes"]] == [NASTY, "plan"]
    assert shown["edges"] == [{"observer": [NASTY, 1], "observed": ["plan", 1], "via": "read_set"}]


def test_what_has_no_certificate_says_its_state_instead() -> None:
    made = Graph("", True, (node("quote", 0), node("refund", 1, state="in_flight", attempt=2)), ())
    assert "refund #2" in FORMATS["dot"](made)
    assert "in_flight" in FORMATS["mermaid"](made)
    assert "style n1" in FORMATS["mermaid"](made)
