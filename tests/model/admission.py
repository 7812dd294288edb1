"""prepare and its four gates, the admission of compensations, and late observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.draft import Draft, Own, on
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
    SUPERSEDED,
    Effect,
    Key,
    Move,
    Request,
    State,
    Ticket,
    Verdict,
    named,
    ticket_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Answer = tuple[State, Verdict]
Entries = tuple[tuple[str, int, bool], ...]


def prepare(state: State, request: Request, rules: Rules = RULES) -> Answer:
    """Admit, replay or refuse one attempt of an action."""
    draft = Draft(state, rules)
    prior = draft.current(request.intent)
    entries = _entries(request, rules)
    refused = (
        _intent_gate(draft, request, prior)
        or _branch_and_parent_gate(draft, request)
        or _read_set_gate(draft, request, entries, Own(request.intent))
    )
    if refused is not None:
        return draft.answer(refused)
    observed = _observed(draft, Own(request.intent), entries, request.observes)
    if request.parent is not None:
        observed.append(draft.effects[request.parent])
    reads = tuple((domain, seq) for domain, seq, _ in entries)
    return _admit(draft, request, prior, observed, reads=reads, parent=request.parent)


def prepare_compensation(
    state: State,
    intent: str,
    attempt: int,
    rules: Rules = RULES,
    *,
    agent: str = "undoer",
    policy: str = "fence",
) -> Answer:
    """Admit the undoing of one fenced attempt as an effect of its own. It ignores what its target unsettles."""
    draft = Draft(state, rules)
    target = draft.effects.get((intent, 0, attempt))
    if target is None:
        return draft.answer(Verdict("unknown_intent"))
    name, undoes = (intent, attempt) if rules.compensation_keyed_apart else (f"undo:{intent}:{attempt}", 0)
    request = Request(name, target.domain, agent, policy=policy)
    prior = draft.current(name, undoes)
    refused = _intent_gate(draft, request, prior) or _target_gate(draft, target)
    if refused is not None:
        if refused.code == "replay" and prior is not None and prior.target is None and target.state in FENCED:
            # Keyed by a name: what an intent of that name did is taken for the compensation.
            draft.move(target, RELEASED, "compensated", agent)
        return draft.answer(refused)
    return _admit(draft, request, prior, (), undoes=undoes, target=target[:3])


def observe_late(
    state: State, ticket: Ticket, entries: Entries = (), intents: tuple[str, ...] = (), rules: Rules = RULES
) -> Answer:
    """Add what an effect in flight observed since its admission, or leave it as it was."""
    draft = Draft(state, rules)
    mine, refused = draft.holder(ticket)
    if mine is None:
        return draft.answer(refused)
    if mine.state != IN_FLIGHT:
        return draft.answer(on("closure_aborted" if mine.state == ABORTED else "lease_lost", mine))
    known = dict(mine.reads)
    moved = tuple((domain, known[domain], seq) for domain, seq, _ in entries if known.get(domain, seq) != seq)
    added = tuple(entry for entry in entries if entry[0] not in known)
    request = Request(mine.intent, mine.domain, entries=entries, observes=intents)
    own = Own(mine.intent, mine.undoes, mine.target)
    refused = on("read_set_stale", mine, moved=moved) if moved else _read_set_gate(draft, request, entries, own)
    if refused is not None:
        return draft.answer(refused)
    observed = _observed(draft, own, entries, intents)
    draft.put(
        mine._replace(
            reads=mine.reads + tuple((domain, seq) for domain, seq, _ in added),
            observed=tuple(sorted({*mine.observed, *(e[:3] for e in observed)})),
            clock=_clock(mine.clock, observed, mine.agent),
        )
    )
    return draft.answer(Verdict("observed", mine[:3], mine.state, ticket=ticket))


def _entries(request: Request, rules: Rules) -> Entries:
    own = any(domain == request.domain for domain, _, _ in request.entries)
    if request.expected_seq is None or own or not rules.expected_is_an_entry:
        return request.entries
    return (*request.entries, (request.domain, request.expected_seq, True))


def _intent_gate(draft: Draft, request: Request, prior: Effect | None) -> Verdict | None:
    """Gate 1. None means: a new attempt may be admitted, over an expired lease perhaps."""
    if prior is None or prior.state == RELEASED:
        return None
    if prior.fingerprint != request.fingerprint:
        return on("intent_mismatch", prior)
    if prior.state == COMMITTED:
        return Verdict("replay", prior[:3], prior.state)
    if prior.state == EXECUTED:
        closure = draft.closure(prior)
        waits_for = draft.dead(closure) + draft.undecided(closure)
        return on("intent_in_flight", prior, waits_for, held=True)
    if prior.state == IN_FLIGHT and prior.lease == LIVE:
        return on("intent_in_flight", prior)
    return _unheard_gate(draft, request, prior)


def _unheard_gate(draft: Draft, request: Request, prior: Effect) -> Verdict | None:
    """An expired lease is taken over or fenced; everything else stays fenced."""
    unheard = prior.state == IN_FLIGHT or (prior.failure == "lease_expired" and prior.result is None)
    policy = prior.policy if draft.rules.admitted_policy_decides else request.policy
    blocked = draft.rules.compensation_blocks_takeover and draft.undoing(prior) is not None
    if unheard and policy == "takeover" and not blocked:
        return None
    if prior.state == IN_FLIGHT:
        prior = draft.fence_expired(prior, request.agent)
    return on("intent_failed", prior)


def _branch_and_parent_gate(draft: Draft, request: Request) -> Verdict | None:
    """Gate 2."""
    decided = draft.branches.get(request.branch, OPEN) != OPEN
    if decided and draft.rules.decided_branch_refuses:
        return Verdict("branch_decided", state=draft.branches[request.branch])
    if request.parent is not None:
        parent = draft.effects.get(request.parent)
        if parent is None or parent.state != COMMITTED:
            return Verdict("unknown_parent")
    return None


def _target_gate(draft: Draft, target: Effect) -> Verdict | None:
    """Only a fenced attempt is undone, and only when its tool cannot be running any more."""
    current = draft.current(target.intent) is target
    if current and target.lease == LIVE:
        return on("intent_in_flight", target)
    return None if current and target.state in FENCED else on("not_reconcilable", target)


def _read_set_gate(draft: Draft, request: Request, entries: Entries, own: Own) -> Verdict | None:
    """Gate 3, and the refusals of gate 4: everything that moved at once, then what is not settled."""
    moved = tuple((domain, seq, draft.live(domain)) for domain, seq, _ in entries if draft.live(domain) != seq)
    raced = request.expected_seq not in (None, draft.live(request.domain))
    if moved and not (raced and all(domain == request.domain for domain, _, _ in moved)):
        return Verdict("read_set_stale", moved=moved)
    if raced:
        return Verdict("domain_race", moved=moved)
    doubted = [e for domain, _, _ in entries for e in draft.unsettling(domain, own)]
    unsettled = not all(settled for _, _, settled in entries) and draft.rules.unsettled_stays_unsettled
    if doubted or unsettled:
        return Verdict("read_set_unsettled", blockers=named(doubted))
    return _observes_gate(draft, request.observes)


def _observes_gate(draft: Draft, intents: tuple[str, ...]) -> Verdict | None:
    named_effects = [draft.current(intent) for intent in intents]
    if None in named_effects:
        return Verdict("unknown_intent")
    observable = (EXECUTED, COMMITTED) if draft.rules.in_flight_unobservable else (EXECUTED, COMMITTED, IN_FLIGHT)
    unfit = [e for e in named_effects if e.state not in observable]
    return Verdict("read_set_unsettled", blockers=named(unfit)) if unfit else None


def _observed(draft: Draft, own: Own, entries: Entries, intents: tuple[str, ...]) -> list[Effect]:
    """Everything that gets an edge: of each read domain the executed effects and the newest committed one."""
    found = [draft.current(name) for name in intents]
    for domain, _, _ in entries:
        others = [e for e in draft.effects.values() if e.domain == domain and not own.has(e)]
        found += [e for e in others if e.state == EXECUTED]
        committed = [e for e in others if e.state == COMMITTED]
        if committed:
            found.append(max(committed, key=lambda e: e.seq))
    return found


def _clock(known, observed: Iterable[Effect], agent: str) -> tuple[tuple[str, int], ...]:
    """What was known, joined with the clocks of what was observed, ticked for the agent."""
    joined: dict[str, int] = {}
    for clock in (known, *(e.clock for e in observed)):
        for name, count in clock:
            joined[name] = max(count, joined.get(name, 0))
    joined[agent] = joined.get(agent, 0) + 1
    return tuple(sorted(joined.items()))


def _admit(draft: Draft, request: Request, prior: Effect | None, observed, *, undoes: int = 0, **facts) -> Answer:
    takes_over = prior is not None and prior.state != RELEASED
    if takes_over:
        draft.move(prior, SUPERSEDED, "takeover", request.agent, lease=None)
    effect = Effect(
        request.intent,
        undoes,
        1 if prior is None else prior.attempt + 1,
        IN_FLIGHT,
        request.domain,
        draft.advance(request.domain),
        request.agent,
        request.fingerprint,
        request.policy,
        request.on_stale,
        request.branch,
        observed=_keys(observed),
        clock=_clock(request.clock, observed, request.agent),
        took_over=takes_over,
        **facts,
    )
    if request.branch is not None:
        draft.branches.setdefault(request.branch, OPEN)
    draft.put(effect)
    draft.moves.append(Move(effect[:3], None, IN_FLIGHT, "admitted", request.agent))
    return draft.answer(Verdict("fresh", effect[:3], IN_FLIGHT, ticket=ticket_of(effect)))


def _keys(effects: Iterable[Effect]) -> tuple[Key, ...]:
    return tuple(sorted({e[:3] for e in effects}))
