"""reconcile: what an operator found out about an unknown outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.draft import Draft, on
from tests.model.rules import RULES, Rules
from tests.model.state import (
    ABORTED,
    COMMITTED,
    EXECUTED,
    FENCED,
    IN_FLIGHT,
    LIVE,
    OPEN,
    RELEASED,
    Effect,
    State,
    Verdict,
    named,
)

if TYPE_CHECKING:
    from tests.model.admission import Answer


def reconcile(
    state: State,
    intent: str,
    attempt: int,
    outcome: str,
    rules: Rules = RULES,
    *,
    undoes: int = 0,
    result: str | None = None,
    over: bool = False,
    operator: str = "operator",
) -> Answer:
    """Record what really happened to a fenced attempt, and act on it. An expired lease is fenced on the way."""
    draft = Draft(state, rules)
    mine = draft.current(intent, undoes)
    if mine is None:
        return draft.answer(Verdict("unknown_intent"))
    if mine.attempt != attempt and rules.judgement_names_attempt:
        return draft.answer(on("attempt_mismatch", mine))
    if mine.lease == LIVE:
        return draft.answer(on("intent_in_flight", mine))
    if mine.state == IN_FLIGHT:
        mine = draft.fence_expired(mine, operator)
    verdict = _refused(draft, mine, outcome)
    if verdict is None and outcome == "happened":
        verdict = _happened(draft, mine, result, over=over, operator=operator)
    elif verdict is None:
        mine = draft.move(mine, RELEASED, f"reconciled_{outcome}", operator, lease=None)
        verdict = Verdict("reconciled", mine[:3], RELEASED)
    return draft.answer(verdict)


def _refused(draft: Draft, mine: Effect, outcome: str) -> Verdict | None:
    if mine.state not in FENCED:
        return on("not_reconcilable", mine)
    undoing, unresolved = draft.undoing(mine), draft.being_undone(mine)
    if outcome == "happened":
        if undoing is not None and draft.rules.compensation_closes:
            return on("not_reconcilable", mine, [undoing])
    elif unresolved is not None and draft.rules.compensation_blocks_release:
        return on("intent_in_flight" if unresolved.state == IN_FLIGHT else "not_reconcilable", mine, [unresolved])
    if outcome == "did_not_happen" and mine.result is not None:
        # A result on record says that the tool ran: it can be compensated, not unsaid.
        return on("not_reconcilable", mine)
    return None


def _happened(draft: Draft, mine: Effect, result: str | None, *, over: bool, operator: str) -> Verdict:
    known = mine.result or result
    if known is None:
        return on("invalid_request", mine)
    if result is not None and result != known:
        return on("commit_conflict", mine)
    closure = draft.closure(mine)
    dead = draft.dead(closure)
    branch = draft.branches.get(mine.branch)
    obeys = draft.rules.happened_obeys_predicate
    if obeys and (dead or branch == ABORTED):
        if not over:
            return on("closure_aborted", mine, dead)
        draft.commit(mine, "reconciled_over", operator, result=known, over=named(dead))
        return Verdict("reconciled", mine[:3], COMMITTED)
    if obeys and (draft.undecided(closure) or branch == OPEN):
        draft.move(mine, EXECUTED, "reconciled_happened", operator, result=known, asked=True, lease=None)
        return Verdict("reconciled", mine[:3], EXECUTED)
    draft.commit(mine, "reconciled_happened", operator, result=known)
    return Verdict("reconciled", mine[:3], COMMITTED)
