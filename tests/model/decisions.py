"""Decisions about speculative effects by others than their holders: all of a closure commits, or none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.draft import Draft, on
from tests.model.rules import RULES, Rules
from tests.model.state import (
    ABORTED,
    COMMITTED,
    EXECUTED,
    EXPIRED,
    IN_FLIGHT,
    OPEN,
    RELEASED,
    SUPERSEDED,
    SYSTEM,
    Effect,
    State,
    Verdict,
    named,
)

if TYPE_CHECKING:
    from tests.model.admission import Answer

OPERATOR = "operator"


def promote(
    state: State,
    *,
    intent: str | None = None,
    branch: str | None = None,
    actor: str = OPERATOR,
    rules: Rules = RULES,
) -> Answer:
    """Commit the closure of an intent, or a branch and its closure, in one step or not at all."""
    if branch is not None:
        after, verdict = reconcile_branch(state, branch, actor=actor, rules=rules)
        codes = {"aborted": "closure_aborted", "pending": "closure_pending"}
        return after, verdict._replace(code=codes.get(verdict.code, verdict.code))
    draft = Draft(state, rules)
    mine = draft.current(intent or "")
    if mine is None:
        return draft.answer(Verdict("unknown_intent"))
    return draft.answer(decide(draft, [mine], actor, branch=None))


def reconcile_branch(state: State, branch: str, *, actor: str = OPERATOR, rules: Rules = RULES) -> Answer:
    """The total answer about a branch: committed, aborted or pending."""
    draft = Draft(state, rules)
    decided = draft.branches.get(branch)
    if decided is None:
        return draft.answer(Verdict("unknown_branch"))
    if decided != OPEN:
        return draft.answer(Verdict(decided, state=decided))
    verdict = decide(draft, _members(draft, branch), actor, branch=branch)
    codes = {"closure_aborted": "aborted", "closure_pending": "pending"}
    return draft.answer(verdict._replace(code=codes.get(verdict.code, verdict.code)))


def decide(draft: Draft, roots: list[Effect], actor: str, *, branch: str | None) -> Verdict:
    """Commit the roots and everything they rest on, or abort the roots, or say what they wait for."""
    members = {root[:3]: root for root in roots}
    for root in roots:
        if root.state != COMMITTED:
            members |= {member[:3]: member for member in draft.closure(root)}
    left = [member for member in members.values() if member.state != COMMITTED]
    dead = draft.dead(left)
    if dead:
        return _fall(draft, roots, dead, actor, branch)
    waits_for = [e for e in left if e.state == IN_FLIGHT or _foreign(draft, e, branch)]
    if waits_for:
        return Verdict("closure_pending", blockers=named(waits_for))
    ready = [e for e in left if e.state == EXECUTED]
    stale = [] if draft.rules.executed_checked_once else [e for e in ready if draft.moved(e)]
    if stale:
        return on("read_set_stale", stale[0])
    for effect in sorted(ready, key=lambda e: len(draft.past(e))):
        draft.commit(effect, "promoted", actor)
    _close(draft, branch, COMMITTED)
    return Verdict("committed", state=COMMITTED, count=len(ready))


def _foreign(draft: Draft, effect: Effect, branch: str | None) -> bool:
    """Whether the effect belongs to another open branch: that one decides."""
    if not draft.rules.promoted_by_branch or effect.branch == branch:
        return False
    return draft.branches.get(effect.branch) == OPEN


def _fall(draft: Draft, roots: list[Effect], dead: list[Effect], actor: str, branch: str | None) -> Verdict:
    """A dead member: the set aborts, but not what it rests on: that never observed what died.

    Of a single intent nothing is left to abort: with a dead member in its closure it fell in that cascade.
    """
    if branch is not None:
        draft.end(roots, "closure_dead", actor)
        _close(draft, branch, ABORTED)
    return Verdict("closure_aborted", state=ABORTED, blockers=named(dead))


def _members(draft: Draft, branch: str) -> list[Effect]:
    """Released and superseded attempts are members of nothing: another attempt is, or none."""
    return [e for e in draft.effects.values() if e.branch == branch and e.state not in (RELEASED, SUPERSEDED)]


def _close(draft: Draft, branch: str | None, outcome: str) -> None:
    if branch is not None:
        draft.changed = True
        draft.branches[branch] = outcome


def abort_branch(state: State, branch: str, *, actor: str = OPERATOR, rules: Rules = RULES) -> Answer:
    """Roll back every undecided effect of a branch, and what rests on them, without any ticket."""
    draft = Draft(state, rules)
    decided = draft.branches.get(branch)
    if decided is None or not rules.rollback_without_ticket:
        return draft.answer(Verdict("unknown_branch"))
    if decided == COMMITTED:
        return draft.answer(Verdict("branch_decided", state=decided))
    if decided == OPEN:
        _close(draft, branch, ABORTED)
        draft.end(_members(draft, branch), "branch_aborted", actor)
    return draft.answer(Verdict("aborted", state=ABORTED))


def abort_intent(
    state: State, intent: str, attempt: int, *, undoes: int = 0, actor: str = OPERATOR, rules: Rules = RULES
) -> Answer:
    """Roll back one attempt, and what rests on it, without its ticket."""
    draft = Draft(state, rules)
    mine = draft.current(intent, undoes)
    if mine is None or not rules.rollback_without_ticket:
        return draft.answer(Verdict("unknown_intent"))
    if mine.attempt != attempt:
        return draft.answer(on("attempt_mismatch", mine))
    if mine.state == COMMITTED:
        return draft.answer(on("commit_conflict", mine))
    draft.end([mine], "intent_aborted", actor)
    mine = draft.effects[mine[:3]]
    return draft.answer(on("rolled_back" if mine.state == ABORTED else "not_reconcilable", mine))


def settle(state: State, rules: Rules = RULES) -> Answer:
    """Do what callers may no longer be alive to do, until nothing moves."""
    draft = Draft(state, rules)
    fence_all_expired(draft)
    while _settle_one(draft):
        pass
    return draft.answer(Verdict("settled"))


def fence_all_expired(draft: Draft) -> int:
    """Fence every lease that ran out; an effect that fell in the cascade of another one is not fenced any more."""
    count = 0
    for key in list(draft.effects):
        effect = draft.effects[key]
        if effect.state == IN_FLIGHT and effect.lease == EXPIRED:
            draft.fence_expired(effect, SYSTEM)
            count += 1
    return count


def _settle_one(draft: Draft) -> bool:
    for effect in draft.effects.values():
        if effect.state != EXECUTED:
            continue
        closure = draft.closure(effect)
        branch = draft.branches.get(effect.branch)
        if draft.dead(closure) or branch == ABORTED:
            draft.move(effect, ABORTED, "closure_dead", SYSTEM)
            return True
        stale = not draft.rules.executed_checked_once and draft.moved(effect)
        if effect.asked and branch != OPEN and not draft.undecided(closure) and not stale:
            draft.commit(effect, "settled", SYSTEM)
            return True
    return False
