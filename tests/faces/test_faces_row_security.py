"""The faces that agents use, as an application's role in a database where row security is on."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from mcp import Client

from tests.support.faces import command, gateway, mcp, policy, run, said, upstream
from tests.support.roles import url_as
from tests.support.rows import all_of
from tests.support.witness import Witness

CALL = {"intent": "pay", "domain": "d", "tool": "t", "agent": "x"}


@pytest.fixture
def app(isolated: sa.Engine) -> str:
    return url_as(isolated, "effectfence_app")


def committed(engine: sa.Engine) -> list[str]:
    return all_of(engine, "SELECT DISTINCT namespace FROM effectfence.certificates")


def test_a_gateway_names_its_tenant_when_its_policy_says_so(app: str, isolated: sa.Engine, tmp_path: Path) -> None:
    books = Witness(tmp_path / "books")

    async def main(rules: str) -> None:
        async with Client(gateway(app, upstream(books.path), "--policy", rules)) as client:
            assert not (await client.call_tool("charge", {"x": "1"})).is_error

    status, _, err = command("gateway", "--database-url", app, "--policy", policy(tmp_path, "a"), "--", "true")
    assert status == 3
    assert "row security is on" in err
    for _ in range(2):
        run(main(policy(tmp_path, "a", row_security=True)))
    assert (books.count(), committed(isolated)) == (1, ["a"])


def test_the_verbs_name_their_tenant_when_the_command_says_so(app: str, isolated: sa.Engine) -> None:
    async def main() -> None:
        async with Client(mcp(app, "a", "--row-security")) as client:
            prepared = said(await client.call_tool("fence_prepare", CALL))["prepared"]
            assert (
                said(await client.call_tool("fence_commit", {"prepared": prepared, "result": 1}))["status"]
                == "committed"
            )
            walked = said(await client.call_tool("fence_lineage", {"name": "pay"}))
            assert len(walked["nodes"]) == 1

    status, _, err = command("mcp", "--database-url", app, "-n", "a")
    assert status == 3
    assert "row security is on" in err
    run(main())
    assert committed(isolated) == ["a"]
