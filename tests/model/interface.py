"""The model for others to drive: every verb by its name, and rows that can be compared with stored ones.

    model = Model()
    verdict = model.call("prepare", Request("charge:1", "order:1"))
    verdict = model.call("commit", verdict.ticket, "done")
    model.rows()

A verdict's `code` is the library's error code or the name of an outcome. Time does not pass by itself: `expire` lets the
lease of an effect run out. A compensation's key is (intent, the attempt that it undoes, its own attempt).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.admission import observe_late, prepare, prepare_compensation
from tests.model.completion import abort, commit, expire, renew, sweep
from tests.model.decisions import abort_branch, abort_intent, promote, reconcile_branch, settle
from tests.model.outcomes import reconcile
from tests.model.reading import reserve, seen_number
from tests.model.state import COMMITTED, Key, Move, State, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

VERBS: dict[str, Callable[..., tuple[State, Verdict]]] = {
    "prepare": prepare,
    "prepare_compensation": prepare_compensation,
    "observe_late": observe_late,
    "commit": commit,
    "abort": abort,
    "renew": renew,
    "expire": expire,
    "sweep": sweep,
    "settle": settle,
    "promote": promote,
    "reconcile_branch": reconcile_branch,
    "abort_branch": abort_branch,
    "abort_intent": abort_intent,
    "reconcile": reconcile,
    "reserve": reserve,
}


class EffectRow(NamedTuple):
    """What of an effect's row means something; versions and times do not."""

    state: str
    domain: str
    seq: int
    branch: str | None
    lease: str | None
    result: str | None
    asked: bool
    failure: str | None
    took_over: bool
    reads: tuple[tuple[str, int], ...]
    clock: tuple[tuple[str, int], ...]


class Rows(NamedTuple):
    effects: dict[Key, EffectRow]
    domains: dict[str, int]
    branches: dict[str, str]
    edges: frozenset[tuple[Key, Key]]
    """(observer, observed)."""
    certificates: dict[Key, tuple[Key | None, tuple[tuple[str, int, str], ...] | None]]
    """Parent, and the blockers of one that was reconciled over a dead closure."""


def rows(state: State) -> Rows:
    return Rows(
        {effect[:3]: EffectRow(*(getattr(effect, name) for name in EffectRow._fields)) for effect in state.effects},
        dict(state.domains),
        dict(state.branches),
        frozenset((effect[:3], below) for effect in state.effects for below in effect.observed),
        {effect[:3]: (effect.parent, effect.over) for effect in state.effects if effect.state == COMMITTED},
    )


class Model:
    """One namespace, its history included."""

    def __init__(self) -> None:
        self.state = State()
        self.history: list[Move] = []

    def call(self, verb: str, *args, **facts) -> Verdict:
        self.state, verdict = VERBS[verb](self.state, *args, **facts)
        self.history += verdict.moves
        return verdict

    def observe(self, domain: str) -> tuple[int, bool]:
        """The number of a domain and whether it is settled."""
        return seen_number(self.state, domain)

    def rows(self) -> Rows:
        return rows(self.state)
