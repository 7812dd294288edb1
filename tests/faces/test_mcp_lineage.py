"""The walk along the edges: every effect once, at the depth at which it is met first, however dense the graph is."""

from __future__ import annotations

from typing import Any

from effectfence_pg import AsyncFence
from effectfence_pg.mcp.lineage import lineage
from tests.support.faces import run
from tests.support.world import World


def test_a_dense_graph_is_walked_in_each_edge_once(world: World, database_url: str) -> None:
    # Each effect observes the three before it: the number of ways doubles from step to step.
    for number in range(40):
        world.commit(f"e{number}", observes=[f"e{before}" for before in range(max(number - 3, 0), number)])

    async def main() -> list[dict[str, Any]]:
        async with AsyncFence(database_url, namespace=world.namespace) as fence:
            return [
                await lineage(fence, "e39", dependents=False, depth=None),
                await lineage(fence, "e0", dependents=True, depth=2),
            ]

    down, up = run(main())
    assert [node["depth"] for node in down["nodes"]] == sorted((39 - number + 2) // 3 for number in range(40))
    assert len(down["edges"]) == 3 * 40 - 6
    assert {node["intent"] for node in up["nodes"]} == {f"e{number}" for number in range(7)}
