"""I1 to I5, I7 and I13 as they must hold in every snapshot. Each yields what it finds wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.state import ABORTED, COMMITTED, DEAD, EXECUTED, IN_FLIGHT, OPEN, RELEASED, Effect, State
from tests.model.world import Situation, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.model.happening import Scene

ALIVE = (IN_FLIGHT, EXECUTED, COMMITTED)


def i1_one_intent_at_most_one_committed_effect(situation: Situation, scene: Scene) -> Iterator[str]:
    """And executions never exceed admitted attempts; what is committed stands, what is released does not."""
    state, world = situation
    admitted = {e[:3] for e in state.effects}
    if not world.ran <= admitted:
        yield f"ran without admission: {sorted(world.ran - admitted)}"
    committed = [e[:2] for e in state.effects if e.state == COMMITTED]
    if len(committed) != len(set(committed)):
        yield f"committed twice: {committed}"
    for effect in state.effects:
        if effect.target is None:
            yield from _stands(state, world, effect)
    yield from _acted_twice(state, world)


def _stands(state: State, world: World, effect: Effect) -> Iterator[str]:
    stands = world.stands(effect)
    if effect.state == COMMITTED and not stands and effect[:3] in world.ran - world.late:
        yield f"{effect[:3]} is committed and does not stand"
    runnable = effect.state == RELEASED and effect is state.current(*effect[:2])
    if runnable and stands and _answered_for(state, world, effect):
        yield f"{effect.intent} is runnable again and stands downstream"


def _answered_for(state: State, world: World, effect: Effect) -> bool:
    """Whether the fence, and not a mistaken operator or a holder past its lease, answers for what stands."""
    doers = [e[:3] for e in state.effects if world.mark(e) == world.mark(effect) and e[:3] in world.ran]
    return not any(doer in world.late or doer in world.wronged for doer in doers)


def _acted_twice(state: State, world: World) -> Iterator[str]:
    """A tool that is not idempotent acted again although nobody had said what became of the first time."""
    doubtful = world.late | world.wronged
    doers = [e for e in state.effects if e[:3] in world.ran and e.target is None and e[:3] not in doubtful]
    standing = [e.intent for e in doers if e.intent not in world.idempotent and world.stands(e)]
    if len(standing) != len(set(standing)):
        yield f"acted twice: {standing}"


def i2_a_number_is_given_once(situation: Situation, scene: Scene) -> Iterator[str]:
    state = situation.fence
    given = [(e.domain, e.seq) for e in state.effects]
    if len(given) != len(set(given)):
        yield f"a number was given twice: {sorted(given)}"
    for domain, seq in given:
        if seq > state.live(domain):
            yield f"{domain} is at {state.live(domain)} and gave {seq}"


def i3_lineage_has_no_cycle_and_clocks_go_up(situation: Situation, scene: Scene) -> Iterator[str]:
    """Clocks that go up strictly along every edge leave no room for a cycle."""
    effects = {e[:3]: e for e in situation.fence.effects}
    for effect in effects.values():
        for key in effect.observed:
            below, above = dict(effects[key].clock), dict(effect.clock)
            if below == above or any(above.get(agent, 0) < count for agent, count in below.items()):
                yield f"{effect[:3]} observed {key} and its clock is not later"
        if effect.parent is not None and effects[effect.parent].state != COMMITTED:
            yield f"the parent of {effect[:3]} is no certificate"


def i4_what_is_committed_rests_on_what_is_committed(situation: Situation, scene: Scene) -> Iterator[str]:
    """Save certificates marked `reconciled_over`. A branch is a closure as well: all of it, or none."""
    state = situation.fence
    states = {e[:3]: e.state for e in state.effects}
    for effect in state.effects:
        if effect.state != COMMITTED or effect.over is not None:
            continue
        loose = [key for key in effect.observed if states[key] != COMMITTED]
        if loose:
            yield f"{effect[:3]} is committed and rests on {loose[0]}, {states[loose[0]]}"
        if state.branch(effect.branch) in (OPEN, ABORTED):
            yield f"{effect[:3]} is committed and its branch is {state.branch(effect.branch)}"


def i5_nothing_alive_observes_what_is_dead(situation: Situation, scene: Scene) -> Iterator[str]:
    """At every snapshot, with the same exception."""
    state = situation.fence
    states = {e[:3]: e.state for e in state.effects}
    for effect in state.effects:
        if effect.state not in ALIVE or effect.over is not None:
            continue
        dead = [key for key in effect.observed if states[key] in DEAD]
        if dead:
            yield f"{effect[:3]} is {effect.state} and observes {dead[0]}, {states[dead[0]]}"
        branch = state.branch(effect.branch)
        if branch == ABORTED or (branch == COMMITTED and effect.state != COMMITTED):
            yield f"{effect[:3]} is {effect.state} in a branch that is {branch}"


def i7_a_result_has_its_effect(situation: Situation, scene: Scene) -> Iterator[str]:
    """What is executed or committed has its result on record. That none is lost is a matter of steps."""
    for effect in situation.fence.effects:
        if effect.state in (EXECUTED, COMMITTED) and effect.result is None:
            yield f"{effect[:3]} is {effect.state} without a result"


def i13_nobody_acted_on_what_was_rolled_back(situation: Situation, scene: Scene) -> Iterator[str]:
    """Whoever validated a read set at prepare and at commit: everything it saw still stands.

    Save what was written behind the fence's back, by a holder past its lease or one that an operator was mistaken about.
    """
    state, world = situation
    doubtful = {world.mark(e)[1:] for e in state.effects if e[:3] in world.late | world.wronged}
    for sight in world.sights:
        effect = state.effect(sight.key)
        if sight.key not in world.validated or effect.state not in (EXECUTED, COMMITTED) or effect.over is not None:
            continue
        for domain, value in sight.values:
            gone = value - world.value(domain) - doubtful
            if gone:
                yield f"{sight.key} acted on {sorted(gone)} in {domain}, which is gone"


SNAPSHOTS: dict[str, Callable[[Situation, Scene], Iterator[str]]] = {
    "I1": i1_one_intent_at_most_one_committed_effect,
    "I2": i2_a_number_is_given_once,
    "I3": i3_lineage_has_no_cycle_and_clocks_go_up,
    "I4": i4_what_is_committed_rests_on_what_is_committed,
    "I5": i5_nothing_alive_observes_what_is_dead,
    "I7": i7_a_result_has_its_effect,
    "I13": i13_nobody_acted_on_what_was_rolled_back,
}
