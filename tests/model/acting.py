"""One step: one call of a verb with explicit arguments, or one thing that happens in the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.admission import observe_late, prepare, prepare_compensation
from tests.model.completion import abort, commit, renew, sweep
from tests.model.decisions import abort_branch, abort_intent, promote, reconcile_branch, settle
from tests.model.happening import HAPPENINGS, Outcome, Scene
from tests.model.outcomes import reconcile
from tests.model.state import (
    COMMITTED,
    EXECUTED,
    FAILED,
    IN_FLIGHT,
    Key,
    Request,
    Ticket,
    ticket_of,
)
from tests.model.world import Sight, Situation, reader

if TYPE_CHECKING:
    from collections.abc import Callable

RESULT = "done"
NOBODY: Key = ("nobody", 0, 1)


class Step(NamedTuple):
    """What happens: the name of a function below, and its arguments."""

    kind: str
    args: tuple = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


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


def _stranger(situation: Situation, scene: Scene, verb: str, ticket: Ticket) -> Outcome:
    """Somebody shows a ticket that prepare did not give."""
    calls = {"commit": (commit, RESULT), "abort": (abort,), "renew": (renew,), "observe_late": (observe_late,)}
    call, *facts = calls[verb]
    return _decided(situation, call, ticket, *facts, rules=scene.rules)


# -- what others decide


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


def _reconcile(situation: Situation, scene: Scene, key: Key, outcome: str, over: bool = False, **found) -> Outcome:
    intent, undoes, attempt = key
    if outcome == "happened":
        found.setdefault("result", RESULT)
    return _decided(situation, reconcile, intent, attempt, outcome, scene.rules, undoes=undoes, over=over, **found)


def _find_nothing(situation: Situation, scene: Scene, key: Key, result: str | None) -> Outcome:
    """Somebody says that an attempt happened, and knows no result of it, or another one."""
    return _reconcile(situation, scene, key, "happened", result=result)


def _decided(situation: Situation, verb: Callable, *args, **facts) -> Outcome:
    state, verdict = verb(situation.fence, *args, **facts)
    return Situation(state, situation.world), verdict


def _promote(situation: Situation, scene: Scene, intent: str) -> Outcome:
    return _decided(situation, promote, intent=intent, rules=scene.rules)


def _reconcile_branch(situation: Situation, scene: Scene, branch: str) -> Outcome:
    return _decided(situation, reconcile_branch, branch, rules=scene.rules)


def _abort_branch(situation: Situation, scene: Scene, branch: str) -> Outcome:
    return _decided(situation, abort_branch, branch, rules=scene.rules)


def _abort_intent(situation: Situation, scene: Scene, intent: str, attempt: int) -> Outcome:
    return _decided(situation, abort_intent, intent, attempt, rules=scene.rules)


def _sweep(situation: Situation, scene: Scene) -> Outcome:
    return _decided(situation, sweep, scene.rules)


def _settle(situation: Situation, scene: Scene) -> Outcome:
    return _decided(situation, settle, scene.rules)


ACTS: dict[str, Callable[..., Outcome]] = HAPPENINGS | {
    "prepare": _prepare,
    "observe_late": _observe_late,
    "commit": _commit,
    "abort": _abort,
    "renew": _renew,
    "compensate": _compensate,
    "stranger": _stranger,
    "deliver": _deliver,
    "mistake": _mistake,
    "find_nothing": _find_nothing,
    "reconcile": _reconcile,
    "sweep": _sweep,
    "settle": _settle,
    "promote": _promote,
    "reconcile_branch": _reconcile_branch,
    "abort_branch": _abort_branch,
    "abort_intent": _abort_intent,
}
"""Every kind of step."""
