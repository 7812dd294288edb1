"""The model and the fence driven side by side: after every step both have said the same and stored the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.model.asking import BRANCH, DOMAINS, EDITS, HOME, INTENTS, OBSERVES, PICK, READS, REQUESTS, RESULT
from tests.model.comparing import rows_differ, verdicts_differ
from tests.model.interface import Model
from tests.model.real import Real
from tests.model.state import ABORTED, COMMITTED, EXECUTED, FAILED, IN_FLIGHT, LIVE, Request, State, ticket_of
from tests.model.stored import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.model.state import Effect, Verdict


class SideBySide(RuleBasedStateMachine):
    """Every verb, with whatever arguments, in whatever order."""

    make: ClassVar[Callable[[bool], Real]]
    """Gives a namespace that nobody has used."""
    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.counts["examples"] += 1

    @initialize(own_transaction=st.booleans(), start=st.sampled_from((0, 0, 0, 61)))
    def begin(self, *, own_transaction: bool, start: int) -> None:
        """The watermark of a domain moves at its 64th number: some examples begin shortly before."""
        self.real = type(self).make(own_transaction)
        if start:
            for domain in DOMAINS:
                self.real.storage.start_at(domain, start)
            self.model.state = State(domains=tuple((domain, start) for domain in DOMAINS))

    # -- both at once

    def both(self, verb: str, *args: Any, only_real: dict[str, Any] | None = None, **facts: Any) -> Verdict:
        self.counts["steps"] += 1
        expected = self.model.call(verb, *args, **facts)
        found = self.real.call(verb, *args, **facts, **(only_real or {}))
        self.counts[f"{verb}: {expected.code}"] += 1
        stored = self.real.storage.read()
        wrong = [
            *verdicts_differ(verb, expected, found, stored.rows.edges),
            *rows_differ(self.model.rows(), stored.rows),
        ]
        if not wrong:
            history = self.real.storage.history(stored.names)
            if history != told(self.model.history):
                only_model, only_fence = told(self.model.history) - history, history - told(self.model.history)
                wrong.append(f"history: the model alone has {only_model}, the database alone {only_fence}")
        wrong += [f"the watermark hides {row}" for row in self.real.storage.unsound_watermarks()]
        assert not wrong, "\n".join([f"{verb}{args}{facts}", *wrong])
        return expected

    def any_in(self, *states: str) -> bool:
        return any(effect.state in states for effect in self.model.state.effects)

    def pick(self, number: int, *states: str) -> Effect | None:
        """One of the effects, rather one in these states."""
        effects = self.model.state.effects
        fitting = [effect for effect in effects if effect.state in states]
        found = fitting if fitting and number % 4 else effects
        return found[number % len(found)] if found else None

    def reading(self, domain: str, how: str) -> tuple[str, int, bool]:
        seq, settled = self.model.observe(domain)
        assert self.real.observe(domain) == (seq, settled)
        settled = settled if how == "as it is" else how != "doubted"
        return domain, max(seq - (how == "old"), 0), settled

    def observed(self, picks: Iterable[int]) -> tuple[str, ...]:
        """Intents to observe, rather those that have run and wait."""
        waiting = [effect.intent for effect in self.model.state.effects if effect.state == EXECUTED]
        names = [waiting[n % len(waiting)] if waiting and n % 3 else INTENTS[n % len(INTENTS)] for n in picks]
        return tuple(dict.fromkeys(names))

    def request(self, asked: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
        intent = asked["intent"]
        domain = asked.get("elsewhere", HOME[intent])
        entries = tuple(self.reading(*read) for read in asked.get("reads", ()))
        expected = None
        if "expects" in asked:
            expected = max(self.model.observe(domain)[0] + asked["expects"], 0)
            entries = tuple(entry for entry in entries if entry[0] != domain or entry[1] == expected)
        parent = self.pick(asked["parent"], COMMITTED) if "parent" in asked else None
        request = Request(
            intent,
            domain,
            asked.get("agent", "ann"),
            f"{domain}/{asked.get('what', 'x')}",
            asked.get("policy", "fence"),
            asked.get("on_stale", "fail"),
            asked.get("branch"),
            entries,
            expected,
            self.observed(asked.get("observes", ())),
            None if parent is None else parent.key,
            tuple(sorted(asked.get("clock", {}).items())),
        )
        return request, {"note": asked.get("note", 0), "undoable": asked.get("undoable", False)}

    # -- admission

    @rule(asked=REQUESTS)
    def prepare(self, asked: dict[str, Any]) -> None:
        request, only_real = self.request(asked)
        self.both("prepare", request, only_real=only_real)

    @rule(asked=REQUESTS, closure=st.sampled_from(("hold", "hold", "require")))
    def run(self, asked: dict[str, Any], closure: str) -> None:
        request, only_real = self.request(asked)
        verdict = self.both("prepare", request, only_real=only_real)
        if verdict.code == "fresh":
            self.both("commit", verdict.ticket, "done", closure)

    @precondition(lambda self: self.any_in(FAILED, ABORTED))
    @rule(
        pick=PICK,
        newer=st.sampled_from((0, 0, 0, 1)),
        policy=st.sampled_from(("fence", "fence", "takeover")),
        agent=st.sampled_from(("uma", "ann")),
    )
    def prepare_compensation(self, pick: int, newer: int, policy: str, agent: str) -> None:
        target = self.pick(pick, FAILED, ABORTED)
        self.both("prepare_compensation", target.intent, target.attempt + newer, agent=agent, policy=policy)

    @precondition(lambda self: self.model.state.effects)
    @rule(pick=PICK, reads=READS, intents=OBSERVES, version=st.integers(0, 2))
    def observe_late(self, pick: int, reads: list[tuple[str, str]], intents: list[int], version: int) -> None:
        mine = self.pick(pick, IN_FLIGHT)
        entries = tuple(self.reading(*read) for read in reads)
        self.both("observe_late", ticket_of(mine), entries, self.observed(intents), only_real={"version": version})

    @rule(pick=PICK, domain=st.sampled_from(DOMAINS), behind=st.sampled_from((0, 0, 1)))
    def reserve(self, pick: int, domain: str, behind: int) -> None:
        """Rather in a domain that somebody in flight has read."""
        read = [name for effect in self.model.state.effects if effect.state == IN_FLIGHT for name, _ in effect.reads]
        if read and pick % 4:
            domain = read[pick % len(read)]
        self.both("reserve", domain, max(self.model.observe(domain)[0] - behind, 0))

    # -- the holders, late ones included

    @precondition(lambda self: self.model.state.effects)
    @rule(
        pick=PICK,
        result=RESULT,
        closure=st.sampled_from(("require", "hold", "wait", "promote")),
        version=st.integers(0, 2),
    )
    def commit(self, pick: int, result: str, closure: str, version: int) -> None:
        mine = self.pick(pick, IN_FLIGHT, EXECUTED)
        self.both("commit", ticket_of(mine), result, closure, only_real={"version": version})

    @precondition(lambda self: self.model.state.effects)
    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        self.both("renew", ticket_of(self.pick(pick, IN_FLIGHT)))

    @precondition(lambda self: self.model.state.effects)
    @rule(pick=PICK, field=EDITS, verb=st.sampled_from(("commit", "abort", "renew", "observe_late")))
    def show_an_edited_ticket(self, pick: int, field: str, verb: str) -> None:
        held = ticket_of(self.pick(pick, IN_FLIGHT))
        other: dict[str, Any] = {"token": ("nobody", 0, 1), "seq": held.seq + 1, "attempt": held.attempt + 1}
        facts = {"commit": ("done", "require"), "abort": ("none",), "renew": (), "observe_late": ((), ())}
        self.both(verb, held._replace(**{field: other.get(field, "edited")}), *facts[verb])

    # -- time

    @precondition(lambda self: any(effect.lease == LIVE for effect in self.model.state.effects))
    @rule(pick=PICK)
    def expire(self, pick: int) -> None:
        leased = [effect for effect in self.model.state.effects if effect.lease == LIVE]
        self.both("expire", leased[pick % len(leased)].key)

    @precondition(lambda self: self.any_in(IN_FLIGHT, EXECUTED))
    @rule(verb=st.sampled_from(("sweep", "settle", "settle")))
    def housekeep(self, verb: str) -> None:
        self.both(verb)

    # -- decisions of others

    @precondition(lambda self: self.any_in(EXECUTED))
    @rule(pick=PICK)
    def promote(self, pick: int) -> None:
        self.both("promote", intent=self.pick(pick, EXECUTED).intent)

    @precondition(lambda self: self.model.state.effects)
    @rule(branch=BRANCH, verb=st.sampled_from(("promote", "reconcile_branch", "reconcile_branch", "abort_branch")))
    def decide(self, branch: str, verb: str) -> None:
        if verb == "promote":
            self.both("promote", branch=branch)
        else:
            self.both(verb, branch)

    @precondition(lambda self: self.model.state.effects)
    @rule(
        pick=PICK,
        how=st.sampled_from(("unknown", "none", "by intent", "by another attempt")),
        version=st.integers(0, 2),
    )
    def abort(self, pick: int, how: str, version: int) -> None:
        mine = self.pick(pick, IN_FLIGHT, EXECUTED)
        if how.startswith("by"):
            self.both("abort_intent", mine.intent, mine.attempt + (how != "by intent"), undoes=mine.undoes)
        else:
            self.both("abort", ticket_of(mine), how, only_real={"version": version})

    @precondition(lambda self: self.any_in(FAILED, ABORTED))
    @rule(
        pick=PICK,
        outcome=st.sampled_from(("happened", "happened", "did_not_happen", "compensated")),
        result=st.none() | RESULT,
        over=st.booleans(),
    )
    def reconcile(self, pick: int, outcome: str, result: str | None, over: bool) -> None:
        mine = self.pick(pick, FAILED, ABORTED)
        facts = {"result": result, "over": over} if outcome == "happened" else {}
        self.both("reconcile", mine.intent, mine.attempt, outcome, undoes=mine.undoes, **facts)
