"""Which steps are possible in a situation: what agents, holders, readers, operators and time may do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.acting import Step
from tests.model.happening import Scene
from tests.model.rules import RULES, Rules
from tests.model.state import COMMITTED, EXECUTED, FAILED, FENCED, IN_FLIGHT, LIVE, OPEN, Effect, State
from tests.model.world import Plan, Situation, World, may_undo_by_hand, reader, truths

if TYPE_CHECKING:
    from collections.abc import Iterator


class Configuration(NamedTuple):
    """A small case to explore exhaustively: who wants what, what may happen, and how many steps deep."""

    name: str
    plans: tuple[Plan, ...]
    may: frozenset[str]
    """Kinds of steps beyond prepare, run and commit; see `steps`."""
    depth: int
    start: tuple[Step, ...] = ()
    """What happened before."""
    attempts: int = 1
    numbers_downstream: bool = False
    always: tuple[Step, ...] = ()
    """Calls that make no sense and must change nothing."""

    def scene(self, rules: Rules = RULES) -> Scene:
        return Scene(self.plans, rules, self.numbers_downstream)


def steps(situation: Situation, case: Configuration, scene: Scene) -> Iterator[Step]:
    state, world = situation
    for number, plan in enumerate(case.plans):
        yield from _asking(situation, case, scene, number, plan)
    for effect in state.effects:
        yield from _holding(situation, case, scene, effect)
        yield from _operating(state, world, case, effect)
    if "sweep" in case.may:
        yield Step("sweep")
    if "settle" in case.may:
        yield Step("settle")
    yield from case.always
    for branch, decided in state.branches:
        yield from _deciding(case, branch, decided)
    if "judge" in case.may:
        for intent, attempt in sorted(world.judged):
            yield Step("deliver", (intent, attempt))


def _asking(situation: Situation, case: Configuration, scene: Scene, number: int, plan: Plan) -> Iterator[Step]:
    world = situation.world
    who = reader(number)
    yield from _looking(situation, scene, who, plan.reads, glance="two looks" not in case.may)
    if all(world.look(who, domain).complete for domain in plan.reads):
        yield Step("prepare", (number,))


def _looking(situation: Situation, scene: Scene, who, domains, *, glance: bool) -> Iterator[Step]:
    """A reader looks once, and again when what it saw is out of date. Two looks for number and value, unless at a glance."""
    state, world = situation
    for domain in domains:
        look = world.look(who, domain)
        if look.complete and look.seq == state.live(domain):
            continue
        if glance:
            yield Step("look", (who, domain))
        elif scene.rules.number_before_value:
            # The number first, then the world.
            yield Step("look_number", (who, domain))
            if not look.complete and look.seq >= 0:
                yield Step("look_value", (who, domain))
        else:
            yield Step("look_value", (who, domain))
            if look.value is not None:
                yield Step("look_number", (who, domain))


def _holding(situation: Situation, case: Configuration, scene: Scene, effect: Effect) -> Iterator[Step]:
    """What the holder of an attempt may do, as long as it lives and whatever it was told."""
    world = situation.world
    key, may = effect[:3], case.may
    if "expire" in may and effect.lease == LIVE:
        yield Step("expire", (key,))
    if key in world.gone:
        return
    ran = key in world.ran
    if "die" in may:
        yield Step("die", (key,))
    if not ran and key not in world.turned_away and ("late" in may or key not in world.overdue):
        yield Step("run", (key,))
    if ran:
        for closure in ("require", "hold", "promote"):
            if closure == "require" or closure in may:
                yield Step("commit", (key, closure))
        if "lie" in may:
            yield Step("commit", (key, "require", "something else"))
    if "abort" in may and effect.state != COMMITTED:
        yield Step("abort", (key,))
    if "none" in may and not ran and effect.state != COMMITTED:
        yield Step("abort", (key, "none"))
    if "renew" in may and effect.lease is not None:
        yield Step("renew", (key,))
    if effect.state == IN_FLIGHT:
        yield from _observing(situation, case, scene, effect)


def _observing(situation: Situation, case: Configuration, scene: Scene, effect: Effect) -> Iterator[Step]:
    state, world = situation
    key = effect[:3]
    sight = world.sight(key)
    if sight.plan < 0:
        return
    plan = case.plans[sight.plan]
    known = dict(sight.values)
    reads = [domain for domain in plan.late_reads if domain not in known]
    intents = [state.current(intent) for intent in plan.late_observes]
    yield from _looking(situation, scene, key, reads, glance=True)
    looked = all(world.look(key, domain).complete for domain in reads)
    fresh_intents = any(e is None or e[:3] not in effect.observed for e in intents)
    if looked and (reads or fresh_intents):
        yield Step("observe_late", (key,))


def _operating(state: State, world: World, case: Configuration, effect: Effect) -> Iterator[Step]:
    """What operators may do about an attempt: they look downstream and tell the truth."""
    key, may = effect[:3], case.may
    if effect != state.current(*effect[:2]):
        return
    if "promote_intent" in may and effect.undoes == 0 and effect.state != COMMITTED:
        yield Step("promote", (effect.intent,))
    if "abort_intent" in may and effect.undoes == 0 and effect.state in (EXECUTED, IN_FLIGHT, FAILED):
        yield Step("abort_intent", (effect.intent, effect.attempt))
    if "undo" in may and may_undo_by_hand(world, effect):
        yield Step("undo", (key,))
    if effect.state in (*FENCED, IN_FLIGHT) and (effect.lease != LIVE or "rash" in may):
        true = truths(state, world, effect)
        for outcome in ("happened", "did_not_happen", "compensated"):
            if outcome in may and outcome in true:
                yield Step("reconcile", (key, outcome))
        if "over" in may and "happened" in true:
            yield Step("reconcile", (key, "happened", True))
        if "mistake" in may and "happened" not in true and effect.undoes == 0:
            yield Step("mistake", (key,))
        if "judge" in may and "did_not_happen" in true and effect.undoes == 0:
            yield Step("judge", (effect.intent, effect.attempt))
    if "compensate" in may and effect.target is None and _may_compensate(world, case, effect):
        yield Step("compensate", (effect.intent, effect.attempt))


def _may_compensate(world: World, case: Configuration, effect: Effect) -> bool:
    """A failed attempt is undone when its tool ran, cannot run any more, or would be turned away downstream."""
    key = effect[:3]
    return effect.state != FAILED or key in world.ran or key in world.gone or case.numbers_downstream


def _deciding(case: Configuration, branch: str, decided: str) -> Iterator[Step]:
    if decided != OPEN and "again" not in case.may:
        return
    if "promote_branch" in case.may:
        yield Step("reconcile_branch", (branch,))
    if "abort_branch" in case.may:
        yield Step("abort_branch", (branch,))
