"""Two transactions of callers' own, both executed before either commits: interleavings that no retry hides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from effectfence_pg import FenceRepository, is_retryable
from tests.support.world import World

LIMIT_SECONDS = 30.0
CONFLICT = "conflict"


@dataclass
class Pair:
    """Two decisions about one world, how to see which one stands, and after which of them the other one has to wait."""

    make: Callable[[World], dict[str, Any]]
    left: Callable[[FenceRepository, World, dict[str, Any]], object]
    right: Callable[[FenceRepository, World, dict[str, Any]], object]
    left_stands: Callable[[World], bool]
    right_stands: Callable[[World], bool]
    waits: str = "neither"
    then: dict[str, str] = field(default_factory=dict)
    """The refusal that the loser gets when it runs again, by what stood: `left` or `right`."""

    def waits_after(self, first: str) -> bool:
        return self.waits in {"both", first}


class Side:
    """One serializable transaction of a caller's own."""

    def __init__(self, engine: sa.Engine, world: World) -> None:
        self.connection = engine.connect().execution_options(isolation_level="SERIALIZABLE")
        self.repository = FenceRepository(self.connection, namespace=world.namespace)
        self.pid = self.connection.connection.driver_connection.info.backend_pid
        self.outcome: Any = None

    def execute(self, act: Callable[[FenceRepository], object]) -> None:
        try:
            self.outcome = act(self.repository)
        except Exception as error:
            self.outcome = error
        if isinstance(self.outcome, Exception) and is_retryable(self.outcome):
            self.outcome = CONFLICT

    def commit(self) -> None:
        if self.outcome == CONFLICT:
            self.connection.rollback()
            return
        try:
            self.connection.commit()
        except exc.DBAPIError as error:
            self.outcome = CONFLICT if is_retryable(error) else error


def waits_for_a_lock(engine: sa.Engine, pid: int) -> bool:
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = :pid"
    with engine.connect() as connection:
        return bool(connection.scalar(sa.text(query), {"pid": pid}))


def overlap(world: World, pair: Pair, *, first: str, commits: str) -> dict[str, Any]:
    """Execute both before either commits; what became of each. One that waits for the other can only commit after it."""
    made = pair.make(world)
    second = "right" if first == "left" else "left"
    sides = {name: Side(world.engine, world) for name in (first, second)}
    acts = {name: lambda r, name=name: getattr(pair, name)(r, world, made) for name in sides}
    thread = threading.Thread(target=sides[second].execute, args=(acts[second],), daemon=True)
    try:
        sides[first].execute(acts[first])
        thread.start()
        deadline = time.monotonic() + LIMIT_SECONDS
        while thread.is_alive() and not waits_for_a_lock(world.engine, sides[second].pid):
            assert time.monotonic() < deadline
            thread.join(0.002)
        assert thread.is_alive() == pair.waits_after(first), sides[second].outcome
        for name in (first, second) if commits == "first" else (second, first):
            if name == second:
                thread.join(LIMIT_SECONDS)
            sides[name].commit()
    finally:
        # The first one's locks go first: the second may still wait for them.
        sides[first].connection.close()
        thread.join(LIMIT_SECONDS)
        sides[second].connection.close()
    return {name: side.outcome for name, side in sides.items()}
