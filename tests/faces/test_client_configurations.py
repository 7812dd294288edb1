"""The configuration files for clients work as they stand, tried with the official client library."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from effectfence_pg.gateway.policy import Policy, read_policy
from tests.support.faces import run

CLIENTS = Path(__file__).parents[2] / "scripts" / "examples" / "clients"
FILES = sorted(path for path in CLIENTS.rglob("*.json"))
# Claude Code fills in ${NAME}, Cursor ${env:NAME}, Claude Desktop nothing.
VARIABLE = {"claude-code": r"\$\{(\w+)\}", "cursor": r"\$\{env:(\w+)\}", "claude-desktop": "^(postgresql://).*"}


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_a_client_starts_what_its_file_says_and_lists_and_calls_it(
    file: Path, migrated_database: str, tmp_path: Path
) -> None:
    servers = json.loads(file.read_text())["mcpServers"]
    # What a desktop gives its children is little more than this.
    bare = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    async def main() -> None:
        for name, tool, arguments in (
            ("charges", "charge", {"order_id": "1"}),
            ("fence", "fence_observe", {"domains": ["order:1"]}),
        ):
            said = servers[name]
            env = {
                key: re.sub(VARIABLE[file.parent.name], migrated_database, text) for key, text in said["env"].items()
            }
            assert env == {"EFFECTFENCE_DATABASE_URL": migrated_database}
            start = StdioServerParameters(
                command=str(Path(sys.executable).with_name(said["command"])),
                args=said["args"],
                env={**bare, **env},
                cwd=tmp_path,
            )
            async with Client(start, mode="legacy") as client:
                assert tool in {listed.name for listed in (await client.list_tools()).tools}
                answers = [await client.call_tool(tool, arguments) for _ in range(2)]
                assert not answers[0].is_error
                assert answers[0].structured_content == answers[1].structured_content

    run(main())
    assert len((tmp_path / "charges.jsonl").read_text().splitlines()) == 1


def test_the_example_of_a_policy_is_one() -> None:
    policy = read_policy(CLIENTS.parent / "policy.toml")
    assert [str(policy.rule(tool).action) for tool in ("charge", "charges")] == ["fence", "observe"]
    # What the comments call the default is the default.
    assert policy.defaults == Policy().defaults
    assert policy.namespace == Policy().namespace


def test_there_is_a_file_for_every_client() -> None:
    assert {file.parent.name for file in FILES} == set(VARIABLE)
