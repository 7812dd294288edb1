"""commit, abort and renew: what the holder of a ticket does after admission, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.decisions import decide, fence_all_expired
from tests.model.draft import Draft, on
from tests.model.rules import RULES, Rules
from tests.model.state import (
    ABORTED,
    COMMITTED,
    EXECUTED,
    EXPIRED,
    FAILED,
    FENCED,
    IN_FLIGHT,
    LIVE,
    OPEN,
    RELEASED,
    SUPERSEDED,
    Effect,
    Key,
    State,
    Ticket,
    Verdict,
)

if TYPE_CHECKING:
    from tests.model.admission import Answer


def commit(state: State, ticket: Ticket, result: str, closure: str = "require", rules: Rules = RULES) -> Answer:
    """Record the result, and mint the certificate if that may be. `wait` that got nothing is `require`."""
    draft = Draft(state, rules)
    mine, refused = draft.holder(ticket)
    if mine is None:
        return draft.answer(refused)
    verdict = _decided_before(draft, mine, result)
    if verdict is None:
        verdict = _evaluate(draft, mine, result, asked=closure != "hold")
        if verdict.code in ("held", "closure_pending") and closure == "promote":
            promoted = decide(draft, [draft.effects[mine[:3]]], mine.agent, branch=None)
            verdict = Verdict("committed", mine[:3], COMMITTED) if promoted.code == "committed" else verdict
    return draft.answer(verdict)


def _decided_before(draft: Draft, mine: Effect, result: str) -> Verdict | None:
    """What the state alone says. None: go on."""
    if mine.state in (SUPERSEDED, RELEASED):
        return _late_evidence(draft, mine, result)
    if mine.state == COMMITTED:
        code = "committed" if mine.result == result else "commit_conflict"
        return Verdict(code, mine[:3], COMMITTED)
    if mine.state == ABORTED:
        if mine.result is None:
            mine = draft.note(mine, "reported", mine.agent, result=result, lease=None)
        return on("closure_aborted", mine, draft.dead(draft.closure(mine)))
    if mine.state == FAILED:
        return _failed_before(draft, mine, result)
    if mine.state == EXECUTED and mine.result != result:
        return on("commit_conflict", mine)
    return None


def _failed_before(draft: Draft, mine: Effect, result: str) -> Verdict | None:
    """None is a late completion: the outcome was unknown, and here it is."""
    if draft.rules.compensation_closes and draft.undoing(mine) is not None:
        if mine.result is None:
            mine = draft.note(mine, "reported", mine.agent, result=result)
        return on("lease_lost", mine)
    if mine.result is None:
        return None
    if mine.failure == "late_evidence":
        return on("lease_lost", mine)
    if mine.result != result:
        return on("commit_conflict", mine)
    return on("read_set_stale", mine, moved=draft.moved(mine))


def _late_evidence(draft: Draft, mine: Effect, result: str) -> Verdict:
    """A result for an attempt that was decided without it is kept; what was said to be without effect is fenced again."""
    known = result == mine.result or result in mine.evidence
    fences = mine.state == RELEASED and mine is draft.current(*mine[:2]) and draft.rules.late_evidence_fences
    if not known and fences:
        # The result of an earlier turn of the same attempt is never overwritten.
        kept = {"result": result} if mine.result is None else {"evidence": (*mine.evidence, result)}
        mine = draft.move(mine, FAILED, "late_evidence", mine.agent, lease=None, **kept)
    elif not known:
        evidence = tuple(sorted({*mine.evidence, result}))
        mine = draft.note(mine, "late_evidence", mine.agent, evidence=evidence)
    return on("lease_lost", mine)


def _evaluate(draft: Draft, mine: Effect, result: str, *, asked: bool) -> Verdict:
    """Dead closure, read set, undecided closure: the first that fails names the state."""
    reported = {"result": result, "lease": None}
    closure = draft.closure(mine)
    dead = draft.dead(closure)
    branch = draft.branches.get(mine.branch)
    if dead or branch == ABORTED:
        mine = draft.move(mine, ABORTED, "closure_dead", mine.agent, **reported)
        return on("closure_aborted", mine, dead)
    undecided = draft.undecided(closure)
    waits = bool(undecided) or branch == OPEN
    stale = _stale(draft, mine)
    if stale and (draft.rules.read_set_before_undecided or not waits):
        return _went_stale(draft, mine, stale, reported)
    if waits:
        return _hold(draft, mine, undecided, reported, asked=asked)
    cause = {FAILED: "late_completion"}.get(mine.state, "committed")
    draft.commit(mine, cause, mine.agent, result=result)
    return Verdict("committed", mine[:3], COMMITTED)


def _stale(draft: Draft, mine: Effect) -> tuple[tuple[str, int, int], ...]:
    """Once, at the holder's first commit: an executed effect has passed it."""
    if mine.on_stale == "certify" or (mine.state == EXECUTED and draft.rules.executed_checked_once):
        return ()
    return draft.moved(mine)


def _went_stale(draft: Draft, mine: Effect, moved, reported) -> Verdict:
    if mine.state == FAILED:
        mine = draft.note(mine, "read_set_stale", mine.agent, failure="read_set_stale", **reported)
    elif mine.state == IN_FLIGHT:
        mine = draft.move(mine, FAILED, "read_set_stale", mine.agent, **reported)
    return on("read_set_stale", mine, moved=moved)


def _hold(draft: Draft, mine: Effect, undecided: list[Effect], reported, *, asked: bool) -> Verdict:
    if mine.state == EXECUTED:
        if asked and not mine.asked:
            mine = draft.put(mine._replace(asked=True))
    else:
        cause = {FAILED: "late_completion"}.get(mine.state, "executed")
        mine = draft.move(mine, EXECUTED, cause, mine.agent, asked=asked, **reported)
    # An effect with a branch is held: its branch decides, not its holder.
    pending = asked and mine.branch is None
    return on("closure_pending" if pending else "held", mine, undecided)


def abort(state: State, ticket: Ticket, effect: str = "unknown", rules: Rules = RULES) -> Answer:
    """The holder gives up: an unknown outcome fences, a known absence of effect releases, a recorded result is rolled back."""
    draft = Draft(state, rules)
    mine, refused = draft.holder(ticket)
    if mine is None:
        return draft.answer(refused)
    none = effect == "none"
    if mine.state == COMMITTED:
        return draft.answer(on("commit_conflict", mine))
    if mine.state == SUPERSEDED or (mine.state == RELEASED and not none):
        if "(abort)" not in mine.evidence:
            draft.note(mine, "late_evidence", mine.agent, evidence=tuple(sorted({*mine.evidence, "(abort)"})))
        return draft.answer(on("lease_lost", mine))
    mine = _given_up(draft, mine, none=none)
    return draft.answer(Verdict("rolled_back", mine[:3], mine.state))


def _given_up(draft: Draft, mine: Effect, *, none: bool) -> Effect:
    speaks = none and not (mine.took_over and draft.rules.takeover_mutes_none)
    if mine.state == EXECUTED:
        return draft.move(mine, ABORTED, "rolled_back", mine.agent)
    if mine.state == IN_FLIGHT:
        to, cause = (RELEASED, "no_effect") if speaks else (FAILED, "outcome_unknown")
        return draft.move(mine, to, cause, mine.agent, lease=None)
    closed = draft.rules.compensation_blocks_release and draft.being_undone(mine) is not None
    if mine.state in FENCED and mine.result is None and speaks and not closed:
        return draft.move(mine, RELEASED, "no_effect", mine.agent, lease=None)
    if mine.state == ABORTED and mine.lease is not None:
        return draft.note(mine, "reported", mine.agent, lease=None)
    return mine


def renew(state: State, ticket: Ticket, rules: Rules = RULES) -> Answer:
    """Extend the lease; the refusal tells the holder to stop."""
    draft = Draft(state, rules)
    mine, refused = draft.holder(ticket)
    if mine is None:
        return draft.answer(refused)
    if mine.state != IN_FLIGHT:
        return draft.answer(on("closure_aborted" if mine.state == ABORTED else "lease_lost", mine))
    if mine.lease != LIVE:
        draft.put(mine._replace(lease=LIVE))
    return draft.answer(Verdict("renewed", mine[:3], IN_FLIGHT, ticket=ticket))


def expire(state: State, key: Key) -> Answer:
    """Time passes: a lease runs out. Nobody is told."""
    draft = Draft(state, RULES)
    mine = draft.effects.get(key)
    if mine is not None and mine.lease == LIVE:
        draft.put(mine._replace(lease=EXPIRED))
    return draft.answer(Verdict("expired", key))


def sweep(state: State, rules: Rules = RULES) -> Answer:
    """Fence every lease that ran out."""
    draft = Draft(state, rules)
    return draft.answer(Verdict("swept", count=fence_all_expired(draft)))
