"""One step: one call of a verb with explicit arguments, or one thing that happens in the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.admission import observe_late, prepare, prepare_compensation
from tests.model.completion import abort, commit, expire, renew, sweep
from tests.model.decisions import abort_branch, abort_intent, promote, reconcile_branch, settle
from tests.model.outcomes import reconcile
from tests.model.rules import Rules
from tests.model.state import (
    COMMITTED,
    EXECUTED,
    FAILED,
    IN_FLIGHT,
    Key,
    Request,
    Verdict,
    ticket_of,
)
from tests.model.world import Look, Plan, Sight, Situation, reader, run_tool, seen_number, undo

if TYPE_CHECKING:
    from collections.abc import Callable

RESULT = "done"
NOBODY: Key = ("nobody", 0, 1)
HAPPENED = Verdict("happened in the world")


class Step(NamedTuple):
    """What happens: the name of a function below, and its arguments."""

    kind: str
    args: tuple = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


class Scene(NamedTuple):
    """What does not change while a configuration is explored."""

    plans: tuple[Plan, ...]
    rules: Rules
    numbers_downstream: bool = False


Outcome = tuple[Situation, Verdict]


def act(situation: Situation, step: Step, scene: Scene) -> Outcome:
    return ACTS[step.kind](situation, scene, *step.args)


# -- the holders' verbs


def _prepare(situation: Situation, scene: Scene, plan: int) -> Outcome:
    state, world = situation
    request, sight = asked(situation, scene, plan)
    state, verdict = prepare(state, request, scene.rules)
    if verdict.code == "fresh":
        world = world.with_sight(sight._replace(key=verdict.key))
    return Situation(state, world), verdict


def asked(situation: Situation, scene: Scene, number: int) -> tuple[Request, Sight]:
    """The request of a plan with what its agent looked at, and what that agent will have acted on."""
    state, world = situation
    plan = scene.plans[number]
    looks = [world.look(reader(number), domain) for domain in plan.reads]
    request = plan.request
    if plan.expects and all(look.settled for look in looks if look.domain == request.domain):
        own = next(look for look in looks if look.domain == request.domain)
        request = request._replace(expected_seq=own.seq)
    entries = [look for look in looks if request.expected_seq is None or look.domain != request.domain]
    request = request._replace(entries=tuple((look.domain, look.seq, look.settled) for look in entries))
    if plan.child_of is not None:
        parent = state.current(plan.child_of)
        request = request._replace(parent=parent[:3] if parent else NOBODY)
    return request, Sight(NOBODY, number, tuple((look.domain, look.value) for look in looks))


def _observe_late(situation: Situation, scene: Scene, key: Key) -> Outcome:
    state, world = situation
    sight = world.sight(key)
    plan = scene.plans[sight.plan]
    looks = [world.look(key, domain) for domain in plan.late_reads]
    entries = tuple((look.domain, look.seq, look.settled) for look in looks)
    ticket = ticket_of(state.effect(key))
    state, verdict = observe_late(state, ticket, entries, plan.late_observes, scene.rules)
    if verdict.code == "observed":
        values = {look.domain: look.value for look in looks} | dict(sight.values)
        world = world.with_sight(sight._replace(values=tuple(sorted(values.items(), key=lambda each: each[0]))))
    return Situation(state, world), verdict


def _commit(situation: Situation, scene: Scene, key: Key, closure: str = "require", result: str = RESULT) -> Outcome:
    state, world = situation
    before = state.effect(key)
    state, verdict = commit(state, ticket_of(before), result, closure, scene.rules)
    after = state.effect(key)
    passed = before.state in (IN_FLIGHT, FAILED) and after.state in (EXECUTED, COMMITTED)
    if passed and before.on_stale == "fail":
        world = world._replace(validated=world.validated | {key})
    return Situation(state, world), verdict


def _abort(situation: Situation, scene: Scene, key: Key, effect: str = "unknown") -> Outcome:
    state, world = situation
    state, verdict = abort(state, ticket_of(state.effect(key)), effect, scene.rules)
    if effect == "none":
        world = world._replace(gone=world.gone | {key})
    return Situation(state, world._replace(overdue=world.overdue | {key})), verdict


def _renew(situation: Situation, scene: Scene, key: Key) -> Outcome:
    state, world = situation
    state, verdict = renew(state, ticket_of(state.effect(key)), scene.rules)
    if verdict.code == "renewed":
        world = world._replace(overdue=world.overdue - {key})
    return Situation(state, world), verdict


def _compensate(situation: Situation, scene: Scene, intent: str, attempt: int) -> Outcome:
    state, world = situation
    state, verdict = prepare_compensation(state, intent, attempt, scene.rules)
    return Situation(state, world), verdict


# -- what others decide


def _judge(situation: Situation, scene: Scene, intent: str, attempt: int) -> Outcome:
    """An operator finds out that an attempt did not happen, and will say so later."""
    world = situation.world
    return Situation(situation.fence, world._replace(judged=world.judged | {(intent, attempt)})), HAPPENED


def _deliver(situation: Situation, scene: Scene, intent: str, attempt: int) -> Outcome:
    state, world = situation
    state, verdict = reconcile(state, intent, attempt, "did_not_happen", scene.rules)
    return Situation(state, world._replace(judged=world.judged - {(intent, attempt)})), verdict


def _mistake(situation: Situation, scene: Scene, key: Key) -> Outcome:
    """An operator says of an attempt that it did not happen, and its holder was only slow."""
    state, world = situation
    intent, undoes, attempt = key
    state, verdict = reconcile(state, intent, attempt, "did_not_happen", scene.rules, undoes=undoes)
    return Situation(state, world._replace(wronged=world.wronged | {key})), verdict


def _reconcile(situation: Situation, scene: Scene, key: Key, outcome: str, over: bool = False) -> Outcome:
    intent, undoes, attempt = key
    result = RESULT if outcome == "happened" else None
    return _decided(
        situation, reconcile, intent, attempt, outcome, scene.rules, undoes=undoes, result=result, over=over
    )


def _decided(situation: Situation, verb: Callable, *args, **facts) -> Outcome:
    state, verdict = verb(situation.fence, *args, **facts)
    return Situation(state, situation.world), verdict


# -- the world


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
    state, world = situation
    return Situation(state, undo(world, state.effect(key), scene.rules)), HAPPENED


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


ACTS: dict[str, Callable[..., Outcome]] = {
    "prepare": _prepare,
    "observe_late": _observe_late,
    "commit": _commit,
    "abort": _abort,
    "renew": _renew,
    "compensate": _compensate,
    "judge": _judge,
    "deliver": _deliver,
    "mistake": _mistake,
    "reconcile": _reconcile,
    "sweep": lambda situation, scene: _decided(situation, sweep, scene.rules),
    "settle": lambda situation, scene: _decided(situation, settle, scene.rules),
    "promote": lambda situation, scene, intent: _decided(situation, promote, intent=intent, rules=scene.rules),
    "reconcile_branch": lambda situation, scene, branch: _decided(
        situation, reconcile_branch, branch, rules=scene.rules
    ),
    "abort_branch": lambda situation, scene, branch: _decided(situation, abort_branch, branch, rules=scene.rules),
    "abort_intent": lambda situation, scene, intent, attempt: _decided(
        situation, abort_intent, intent, attempt, rules=scene.rules
    ),
    "expire": _expire,
    "run": _run,
    "die": _die,
    "undo": _undo,
    "look": _look,
    "look_number": _look_number,
    "look_value": _look_value,
}
"""Every kind of step."""

WORLDLY = frozenset({"judge", "expire", "run", "die", "undo", "look", "look_number", "look_value"})
"""Steps that no verb takes part in."""
