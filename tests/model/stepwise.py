"""I1, I6 to I10, I12 and I13 as they must hold over every step. Each yields what it finds wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.acting import Step, act
from tests.model.happening import HAPPENINGS, Scene
from tests.model.state import IN_FLIGHT, TRANSITIONS, Verdict
from tests.model.world import Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAY_CHANGE = {
    "commit": {"closure_aborted", "closure_pending", "lease_lost", "read_set_stale"},
    "abort": {"lease_lost"},
}
"""Refusals that keep what was reported: the tool has run, and nothing may be lost."""

HOLDER = {
    "commit": {
        "committed",
        "executed",
        "late_completion",
        "late_evidence",
        "closure_dead",
        "read_set_stale",
        "reported",
        "promoted",
        "compensated",
    },
    "abort": {"no_effect", "outcome_unknown", "rolled_back", "reported", "late_evidence"},
    "observe_late": set(),
    "renew": set(),
}
"""What the holder's verbs may do to its own effect; to others only the causes in `EXCEPTIONS`."""

EXCEPTIONS = {"cascade", "promoted", "compensated"}

OTHERS = {
    "prepare": {"admitted", "takeover", "lease_expired", "cascade"},
    "compensate": {"admitted", "lease_expired", "compensated"},
    "stranger": set(),
    "sweep": {"lease_expired", "cascade"},
    "settle": {"lease_expired", "settled", "closure_dead", "cascade"},
    "promote": {"promoted", "closure_dead", "cascade"},
    "reconcile_branch": {"promoted", "closure_dead", "cascade"},
    "abort_branch": {"branch_aborted", "cascade"},
    "abort_intent": {"intent_aborted", "cascade"},
    "reconcile": {
        "lease_expired",
        "reconciled_happened",
        "reconciled_over",
        "reconciled_did_not_happen",
        "reconciled_compensated",
        "compensated",
        "cascade",
    },
}
OTHERS["deliver"] = OTHERS["mistake"] = OTHERS["find_nothing"] = OTHERS["reconcile"]


class Taken(NamedTuple):
    """A step that was taken."""

    before: Situation
    step: Step
    after: Situation
    verdict: Verdict


def i1_nobody_runs_again_what_is_known_to_have_run(taken: Taken, scene: Scene) -> Iterator[str]:
    """No attempt is admitted after one whose late result is on record and that nobody has accounted for."""
    if taken.verdict.code == "fresh":
        prior = taken.before.fence.current(*taken.verdict.key[:2])
        said_without_effect = prior is not None and prior.failure in ("no_effect", "reconciled_did_not_happen")
        if said_without_effect and set(prior.evidence) - {"(abort)"}:
            yield f"{prior[:3]} is known to have run, and {taken.verdict.key} was admitted"


def i6_a_refusal_changes_nothing(taken: Taken, scene: Scene) -> Iterator[str]:
    """The state is the very same object; the fencing of an expired lease is a fact of its own."""
    before, after = taken.before.fence, taken.after.fence
    if not taken.verdict.refused or after is before or taken.verdict.code in MAY_CHANGE.get(taken.step.kind, ()):
        return
    if taken.verdict.moves and all(move.cause in ("lease_expired", "cascade") for move in taken.verdict.moves):
        return
    yield f"{taken.step} was refused with {taken.verdict.code} and changed something"


def i7_a_recorded_result_is_never_lost(taken: Taken, scene: Scene) -> Iterator[str]:
    """It never changes; and whatever the verdict on a commit, what was reported is on record."""
    after = {e[:3]: e for e in taken.after.fence.effects}
    for effect in taken.before.fence.effects:
        later = after.get(effect[:3])
        if later is None or (effect.result is not None and later.result != effect.result):
            yield f"the result of {effect[:3]} is lost"
        elif not set(effect.evidence) <= set(later.evidence):
            yield f"evidence of {effect[:3]} is lost"
    if taken.step.kind == "commit" and taken.verdict.code != "commit_conflict":
        key, *_ = taken.step.args
        reported = taken.step.args[2] if len(taken.step.args) > 2 else "done"
        known = after[key]
        if reported not in (known.result, *known.evidence) and known.result is None:
            yield f"what {key} reported is nowhere"


def i8_only_the_token_moves_an_effect(taken: Taken, scene: Scene) -> Iterator[str]:
    """Operators, cascades, promotion, settling and takeover are the named exceptions, each on record.

    Downstream agrees: it turns away nobody who is the holder.
    """
    kind = taken.step.kind
    for move in taken.verdict.moves:
        if kind in HOLDER:
            own = move.key == taken.step.args[0]
            allowed = HOLDER[kind] if own else EXCEPTIONS
        else:
            allowed = OTHERS[kind]
        if move.cause not in allowed:
            yield f"{taken.step} moved {move.key} by {move.cause}"
        if move.from_state not in (None, move.to_state) and move.to_state not in TRANSITIONS[move.from_state]:
            yield f"{move.key} went from {move.from_state} to {move.to_state}"
    for key in taken.after.world.turned_away - taken.before.world.turned_away:
        effect = taken.before.fence.effect(key)
        if effect.state == IN_FLIGHT and key not in taken.before.world.overdue:
            yield f"{key} holds its intent and was turned away downstream"


def i9_every_transition_is_on_record(taken: Taken, scene: Scene) -> Iterator[str]:
    before = {e[:3]: e.state for e in taken.before.fence.effects}
    for move in taken.verdict.moves:
        if before.get(move.key) != move.from_state:
            yield f"{move} starts from a state that {move.key} was not in"
        caused = move.cause in ("cascade", "compensated")
        if not move.cause or not move.actor or (move.origin is not None and not caused):
            yield f"{move} does not say why or by whom"
        if move.cause == "cascade" and move.origin is None:
            yield f"{move} does not say from where"
        before[move.key] = move.to_state
    after = {e[:3]: e.state for e in taken.after.fence.effects}
    if before != after:
        yield f"{taken.step} moved something without a record"


def i10_no_verb_waits_for_a_tool(taken: Taken, scene: Scene) -> Iterator[str]:
    """A verb is over before a tool runs: what stands downstream changes in steps of its own, between verbs."""
    before, after = taken.before, taken.after
    if taken.step.kind in HAPPENINGS:
        timeless = [e._replace(lease=None) for e in before.fence.effects]
        if timeless != [e._replace(lease=None) for e in after.fence.effects]:
            yield f"{taken.step} changed rows"
    elif (before.world.ran, before.world.standing) != (after.world.ran, after.world.standing):
        yield f"{taken.step} ran a tool"


def i12_the_same_input_gives_the_same_answer(taken: Taken, scene: Scene) -> Iterator[str]:
    if act(taken.before, taken.step, scene) != (taken.after, taken.verdict):
        yield f"{taken.step} gave another answer the second time"


def i13_nothing_changed_in_between(taken: Taken, scene: Scene) -> Iterator[str]:
    """At its first commit a holder finds what it saw, its own effect apart."""
    world = taken.after.world
    for key in world.validated - taken.before.world.validated:
        doubtful = {world.mark(e)[1:] for e in taken.after.fence.effects if e[:3] in world.late | world.wronged}
        for domain, value in world.sight(key).values:
            now = {each for each in world.value(domain) if each[0] != key[0]}
            seen = {each for each in value if each[0] != key[0]}
            if (now ^ seen) - doubtful:
                yield f"{key} acted on {sorted(seen)} in {domain}, and it was {sorted(now)} by then"


STEPWISE: dict[str, Callable[[Taken, Scene], Iterator[str]]] = {
    "I1": i1_nobody_runs_again_what_is_known_to_have_run,
    "I6": i6_a_refusal_changes_nothing,
    "I7": i7_a_recorded_result_is_never_lost,
    "I8": i8_only_the_token_moves_an_effect,
    "I9": i9_every_transition_is_on_record,
    "I10": i10_no_verb_waits_for_a_tool,
    "I12": i12_the_same_input_gives_the_same_answer,
    "I13": i13_nothing_changed_in_between,
}
