"""The examples charge once, whatever their framework does; and the README's. Run by `scripts/test frameworks`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_readme import example

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("agno", "langgraph", "openai_agents", "pydantic_ai")


def run(url: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=os.environ | {"EFFECTFENCE_DATABASE_URL": url, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_example_charges_once(migrated_database: str, framework: str) -> None:
    said = run(migrated_database, "-m", f"examples.{framework}_tool") + run(
        migrated_database, "-m", f"examples.{framework}_tool"
    )
    assert said.count("charging 7") == 1
    assert said.count("The card is charged.") == 2


def test_every_framework_has_a_short_example() -> None:
    found = {path.stem.removesuffix("_tool") for path in (ROOT / "scripts" / "examples").glob("*_tool.py")}
    assert found == set(FRAMEWORKS)


def test_the_readmes_tool_of_a_framework_runs_once(migrated_database: str) -> None:
    code = example("framework")
    said = [run(migrated_database, "-c", code) for _ in range(2)]
    assert "".join(said).count("shipping") == 1
