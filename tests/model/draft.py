"""One verb at work: a mutable copy of the state with the few changes that every verb is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.state import (
    ABORTED,
    CASCADES_TO,
    COMMITTED,
    DEAD,
    EXECUTED,
    FAILED,
    FENCED,
    IN_FLIGHT,
    RELEASED,
    UNSETTLED,
    Effect,
    Key,
    Move,
    State,
    Ticket,
    Verdict,
    named,
    ticket_of,
)

if TYPE_CHECKING:
    from tests.model.rules import Rules


class Own(NamedTuple):
    """The intent that looks at a domain: its own attempts and what it undoes are no news to it."""

    intent: str
    undoes: int = 0
    target: Key | None = None

    def has(self, effect: Effect) -> bool:
        return effect[:2] == self[:2] or effect[:3] == self.target


class Draft:
    def __init__(self, state: State, rules: Rules) -> None:
        self.state = state
        self.rules = rules
        self.effects = {effect[:3]: effect for effect in state.effects}
        self.domains = dict(state.domains)
        self.branches = dict(state.branches)
        self.moves: list[Move] = []
        self.changed = False

    def answer(self, verdict: Verdict) -> tuple[State, Verdict]:
        """The state after, which is the very same object when nothing was changed."""
        if not self.changed:
            return self.state, verdict
        after = State(
            tuple(sorted(self.effects.values())),
            tuple(sorted(self.domains.items())),
            tuple(sorted(self.branches.items())),
        )
        fallen = [move for move in self.moves if move.to_state == ABORTED != move.from_state]
        listed = sorted(fallen, key=lambda move: (-len(self.past(self.effects[move.key])), move.key))
        return after, verdict._replace(
            moves=tuple(self.moves),
            fallen=tuple((m.key, m.from_state, self.effects[m.key].result is not None) for m in listed),
        )

    # -- looking

    def current(self, intent: str, undoes: int = 0) -> Effect | None:
        return max((e for key, e in self.effects.items() if key[:2] == (intent, undoes)), default=None)

    def live(self, domain: str) -> int:
        return self.domains.get(domain, 0)

    def unsettling(self, domain: str, own: Own) -> list[Effect]:
        """The effects, other than the intent's own and what it undoes, that unsettle a domain."""
        return [e for e in self.effects.values() if e.domain == domain and e.state in UNSETTLED and not own.has(e)]

    def closure(self, effect: Effect) -> list[Effect]:
        """What the effect rests on, not itself; what is committed is a member, its own past is not."""
        found: dict[Key, Effect] = {}
        todo = list(effect.observed)
        while todo:
            key = todo.pop()
            if key not in found:
                found[key] = member = self.effects[key]
                if member.state != COMMITTED:
                    todo.extend(member.observed)
        return list(found.values())

    def past(self, effect: Effect) -> set[Key]:
        """Everything below the effect, committed or not."""
        found: set[Key] = set()
        todo = list(effect.observed)
        while todo:
            key = todo.pop()
            if key not in found:
                found.add(key)
                todo.extend(self.effects[key].observed)
        return found

    def dead(self, effects) -> list[Effect]:
        states = DEAD if self.rules.dead_count_alike else FENCED
        return [e for e in effects if e.state in states]

    def undecided(self, effects) -> list[Effect]:
        return [e for e in effects if e.state in (IN_FLIGHT, EXECUTED)]

    def moved(self, effect: Effect) -> tuple[tuple[str, int, int], ...]:
        """The read-set entries that do not hold any more. The own domain moved by the own number."""
        found = []
        for domain, seq in effect.reads:
            expected = seq
            if domain == effect.domain:
                if not self.rules.own_number_compared:
                    continue
                # A verdict that is repeated does not count the number that the failure itself took.
                expected = max(seq, effect.seq) + (effect.failure == "read_set_stale")
            if self.live(domain) != expected:
                found.append((domain, seq, self.live(domain)))
        return tuple(found)

    def undoing(self, effect: Effect) -> Effect | None:
        """The compensation that closes an effect: admitted, and not known to have had no effect."""
        for other in self.effects.values():
            if other.target == effect[:3] and other.state != RELEASED and other is self.current(*other[:2]):
                return other
        return None

    def being_undone(self, effect: Effect) -> Effect | None:
        """The same as long as nobody knows how it ended."""
        undoing = self.undoing(effect)
        return None if undoing is None or undoing.state == COMMITTED else undoing

    def holder(self, ticket: Ticket) -> tuple[Effect | None, Verdict | None]:
        """The effect of a ticket, or the refusal of one that is unknown or was edited."""
        effect = next((e for e in self.effects.values() if e.token == ticket.token), None)
        if effect is None:
            return None, Verdict("unknown_ticket")
        if ticket != ticket_of(effect):
            return None, Verdict("ticket_mismatch", effect[:3])
        return effect, None

    # -- changing

    def put(self, effect: Effect) -> Effect:
        self.changed = True
        self.effects[effect[:3]] = effect
        return effect

    def advance(self, domain: str) -> int:
        """The next number of a domain; none is given twice."""
        self.changed = True
        self.domains[domain] = self.live(domain) + 1
        return self.domains[domain]

    def note(self, effect: Effect, cause: str, actor: str, **changes) -> Effect:
        """Put something on record without a move."""
        self.moves.append(Move(effect[:3], effect.state, effect.state, cause, actor))
        return self.put(effect._replace(**changes))

    def move(self, effect: Effect, to: str, cause: str, actor: str, *, origin: Key | None = None, **changes) -> Effect:
        """One transition, with its number and its cascade."""
        moved = self._change(effect, to, cause, actor, origin=origin, **changes)
        if to in DEAD:
            self._cascade([moved], cause, actor)
        return moved

    def end(self, effects: list[Effect], cause: str, actor: str) -> None:
        """Abort what is still undecided of several effects at once, then whatever rests on them."""
        ended = [
            self._change(effect, ABORTED, cause, actor, lease=self._kept_lease(effect))
            for effect in effects
            if effect.state in CASCADES_TO
        ]
        self._cascade(ended, cause, actor)

    def _change(
        self, effect: Effect, to: str, cause: str, actor: str, *, origin: Key | None = None, **changes
    ) -> Effect:
        self.moves.append(Move(effect[:3], effect.state, to, cause, actor, origin))
        if self.rules.exit_takes_number and (to in DEAD or effect.state in FENCED):
            self.advance(effect.domain)
        return self.put(effect._replace(state=to, failure=cause if to in DEAD else None, **changes))

    def _cascade(self, origins: list[Effect], cause: str, actor: str) -> None:
        """Abort everything that rests on what ended, each with an origin as its cause."""
        unheard = cause in ("lease_expired", "read_set_stale")
        if not self.rules.exits_cascade or (unheard and not self.rules.unheard_exits_cascade):
            return
        met = {origin[:3] for origin in origins}
        todo = [(origin[:3], origin[:3]) for origin in origins]
        while todo:
            below, origin = todo.pop()
            for key, effect in sorted(self.effects.items()):
                if below in effect.observed and key not in met and effect.state != COMMITTED:
                    met.add(key)
                    todo.append((key, origin))
                    if effect.state in CASCADES_TO:
                        self._change(effect, ABORTED, "cascade", actor, origin=origin, lease=self._kept_lease(effect))

    def _kept_lease(self, effect: Effect) -> str | None:
        """An effect aborted in flight keeps its lease: its tool may be running."""
        return effect.lease if self.rules.aborted_keeps_lease else None

    def commit(self, effect: Effect, cause: str, actor: str, **changes) -> Effect:
        """Mint the certificate; a compensation's releases what it undoes."""
        committed = self.move(effect, COMMITTED, cause, actor, lease=None, **changes)
        target = self.effects.get(effect.target) if effect.target else None
        if target is not None and target.state in FENCED:
            self.move(target, RELEASED, "compensated", actor, origin=effect[:3], lease=None)
        return committed

    def fence_expired(self, effect: Effect, actor: str) -> Effect:
        return self.move(effect, FAILED, "lease_expired", actor, lease=None)


def on(code: str, effect: Effect, blockers=(), **facts) -> Verdict:
    """A verdict on an effect, with what stands in the way."""
    return Verdict(code, effect[:3], effect.state, named(blockers), **facts)
