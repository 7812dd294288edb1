"""What happens in the world without any verb: tools act, holders die, readers look, time passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.completion import expire
from tests.model.reading import seen_number
from tests.model.rules import Rules
from tests.model.state import Key, Verdict
from tests.model.world import Look, Plan, Situation, run_tool, undo

if TYPE_CHECKING:
    from collections.abc import Callable

HAPPENED = Verdict("happened in the world")


class Scene(NamedTuple):
    """What does not change while a configuration is explored."""

    plans: tuple[Plan, ...]
    rules: Rules
    numbers_downstream: bool = False


Outcome = tuple[Situation, Verdict]


def _expire(situation: Situation, scene: Scene, key: Key) -> Outcome:
    state, verdict = expire(situation.fence, key)
    world = situation.world
    return Situation(state, world._replace(overdue=world.overdue | {key})), verdict


def _run(situation: Situation, scene: Scene, key: Key) -> Outcome:
    state, world = situation
    effect = state.effect(key)
    target = state.effect(effect.target) if effect.target else None
    return Situation(state, run_tool(world, effect, target, scene.rules, fenced=scene.numbers_downstream)), HAPPENED


def _die(situation: Situation, scene: Scene, key: Key) -> Outcome:
    world = situation.world
    return Situation(situation.fence, world._replace(gone=world.gone | {key})), HAPPENED


def _undo(situation: Situation, scene: Scene, key: Key) -> Outcome:
    """An operator takes back by hand what stands downstream."""
    state, world = situation
    return Situation(state, undo(world, state.effect(key), scene.rules)), HAPPENED


def _judge(situation: Situation, scene: Scene, intent: str, attempt: int) -> Outcome:
    """An operator finds out that an attempt did not happen, and will say so later."""
    world = situation.world
    return Situation(situation.fence, world._replace(judged=world.judged | {(intent, attempt)})), HAPPENED


def _look(situation: Situation, scene: Scene, who: tuple[str, int, int], domain: str) -> Outcome:
    """Number and value in one moment."""
    state, world = situation
    seq, settled = seen_number(state, domain)
    return Situation(state, world.with_look(Look(who, domain, seq, settled, world.value(domain)))), HAPPENED


def _look_number(situation: Situation, scene: Scene, who: tuple[str, int, int], domain: str) -> Outcome:
    state, world = situation
    seq, settled = seen_number(state, domain)
    kept = None if scene.rules.number_before_value else world.look(who, domain).value
    return Situation(state, world.with_look(Look(who, domain, seq, settled, kept))), HAPPENED


def _look_value(situation: Situation, scene: Scene, who: tuple[str, int, int], domain: str) -> Outcome:
    state, world = situation
    return Situation(state, world.with_look(world.look(who, domain)._replace(value=world.value(domain)))), HAPPENED


HAPPENINGS: dict[str, Callable[..., Outcome]] = {
    "expire": _expire,
    "run": _run,
    "die": _die,
    "undo": _undo,
    "judge": _judge,
    "look": _look,
    "look_number": _look_number,
    "look_value": _look_value,
}
