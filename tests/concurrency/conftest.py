"""What tests of concurrency share: processes to race, and a witness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.actor import Actor, actors, ready
from tests.support.witness import Witness


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """What really happened, counted outside of the database."""
    return Witness(tmp_path / "witness")


@pytest.fixture(scope="session")
def processes() -> Iterator[list[Actor]]:
    """Four processes that outlive a test, for starting one takes longer than most tests."""
    with actors(4) as started:
        yield started


@pytest.fixture
def crew(processes: list[Actor], database_url: str, namespace: str, witness: Witness) -> Callable[..., Sequence[Actor]]:
    """The four processes at work in a namespace, this test's own when no other is named."""

    def at_work(of: Sequence[Actor] = processes, namespace: str = namespace, **config: Any) -> Sequence[Actor]:
        return ready(of, database_url, namespace, witness=witness.path, **config)

    return at_work
