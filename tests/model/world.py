"""The world around the fence: tools that act, readers that look, holders that die, and operators that tell the truth."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.rules import Rules
from tests.model.state import ABORTED, FAILED, LIVE, Effect, Key, Request, State

Value = frozenset[tuple[str, int]]
"""What stands in a domain: (intent, attempt) of each effect, attempt 0 for tools that are idempotent downstream."""

UNREAD = -1


class Look(NamedTuple):
    """What a reader saw of a domain: the number with its settledness, and the value, in two looks."""

    who: tuple[str, int, int]
    domain: str
    seq: int = UNREAD
    settled: bool = False
    value: Value | None = None

    @property
    def complete(self) -> bool:
        return self.seq != UNREAD and self.value is not None


class Sight(NamedTuple):
    """What an admitted effect rests on."""

    key: Key
    plan: int
    values: tuple[tuple[str, Value], ...] = ()


class World(NamedTuple):
    ran: frozenset[Key] = frozenset()
    """Whose tool executed downstream; each at most once."""
    late: frozenset[Key] = frozenset()
    """Whose tool executed after its lease had run out: nobody answers for those but downstream."""
    turned_away: frozenset[Key] = frozenset()
    """Whose call downstream refused for its number."""
    overdue: frozenset[Key] = frozenset()
    gone: frozenset[Key] = frozenset()
    """Holders that died, or that said that they did nothing and never will."""
    standing: frozenset[tuple[str, str, int]] = frozenset()
    """(domain, intent, attempt) of every effect that stands."""
    validated: frozenset[Key] = frozenset()
    """Effects whose read set held at prepare and at their first commit."""
    wronged: frozenset[Key] = frozenset()
    """Attempts that a mistaken operator said had not happened."""
    judged: frozenset[tuple[str, int]] = frozenset()
    """Attempts of which an operator is about to say that they did not happen."""
    high: tuple[tuple[str, int], ...] = ()
    """The highest number that downstream saw in each scope."""
    looks: tuple[Look, ...] = ()
    sights: tuple[Sight, ...] = ()
    before: tuple[tuple[Key, frozenset[tuple[str, str, int]]], ...] = ()
    """What stood before each tool acted, for compensations that restore it."""
    idempotent: frozenset[str] = frozenset()
    """Intents whose tool acts once, however often it is called."""

    def mark(self, effect: Effect) -> tuple[str, str, int]:
        """What an effect's tool leaves downstream."""
        return effect.domain, effect.intent, 0 if effect.intent in self.idempotent else effect.attempt

    def stands(self, effect: Effect) -> bool:
        return self.mark(effect) in self.standing

    def value(self, domain: str) -> Value:
        return frozenset((intent, n) for name, intent, n in self.standing if name == domain)

    def look(self, who: tuple[str, int, int], domain: str) -> Look:
        return next((look for look in self.looks if look[:2] == (who, domain)), Look(who, domain))

    def with_look(self, look: Look) -> World:
        others = [other for other in self.looks if other[:2] != look[:2]]
        return self._replace(looks=tuple(sorted([*others, look], key=lambda each: each[:2])))

    def sight(self, key: Key) -> Sight:
        return next((sight for sight in self.sights if sight.key == key), Sight(key, UNREAD))

    def with_sight(self, sight: Sight) -> World:
        others = [other for other in self.sights if other.key != sight.key]
        looks = tuple(look for look in self.looks if look.who not in (sight.key, reader(sight.plan)))
        return self._replace(sights=tuple(sorted([*others, sight], key=lambda each: each.key)), looks=looks)


class Situation(NamedTuple):
    fence: State = State()
    world: World = World()


class Plan(NamedTuple):
    """What an agent wants to do, and what it looks at before and while it does."""

    request: Request
    reads: tuple[str, ...] = ()
    expects: bool = False
    """Gives the own domain's number as `expected_seq`."""
    late_reads: tuple[str, ...] = ()
    late_observes: tuple[str, ...] = ()
    child_of: str | None = None
    """The intent whose certificate is the parent."""


def reader(plan: int) -> tuple[str, int, int]:
    """Who looks before an attempt exists; afterwards it is the attempt's key."""
    return "", 0, plan


def run_tool(world: World, effect: Effect, target: Effect | None, rules: Rules, *, fenced: bool) -> World:
    """The tool acts downstream, once; a downstream that is given numbers refuses those below the highest it saw."""
    key = effect[:3]
    if fenced:
        scope = effect.intent if rules.number_per_intent else effect.domain
        high = dict(world.high)
        if effect.seq < high.get(scope, 0):
            return world._replace(turned_away=world.turned_away | {key})
        world = world._replace(high=tuple(sorted({**high, scope: effect.seq}.items())))
    if not rules.undo_by_meaning:
        world = world._replace(before=tuple(sorted([*world.before, (key, world.standing)], key=lambda each: each[0])))
    late = world.late | {key} if key in world.overdue else world.late
    world = world._replace(ran=world.ran | {key}, late=late)
    if target is None:
        return world._replace(standing=world.standing | {world.mark(effect)})
    return undo(world, target, rules)


def undo(world: World, target: Effect, rules: Rules) -> World:
    """Take the target's effect back. Restoring what stood before would take its neighbours' with it."""
    if rules.undo_by_meaning:
        return world._replace(standing=world.standing - {world.mark(target)})
    earlier = dict(world.before).get(target[:3], world.standing)
    elsewhere = frozenset(each for each in world.standing if each[0] != target.domain)
    return world._replace(standing=elsewhere | frozenset(each for each in earlier if each[0] == target.domain))


def may_undo_by_hand(world: World, effect: Effect) -> bool:
    """An operator takes back what stands once nobody can complete it any more."""
    over = effect.state == ABORTED and effect.lease != LIVE
    dead = effect.state == FAILED and effect[:3] in world.gone
    return (over or dead) and world.stands(effect)


def truths(state: State, world: World, effect: Effect) -> set[str]:
    """The outcomes that an operator who looked downstream may report of a fenced attempt."""
    attempts = [e for e in state.effects if e[:2] == effect[:2]]
    can_act = any(e[:3] not in world.gone | world.ran for e in attempts)
    ran = any(e[:3] in world.ran for e in attempts)
    if effect.target is not None:
        stands = effect[:3] in world.ran
        return {"happened"} if stands else set() if can_act or ran else {"did_not_happen"}
    if world.stands(effect):
        return {"happened"}
    if can_act:
        return set()
    return {"compensated"} if ran else {"compensated", "did_not_happen"}
