"""The small cases that are explored exhaustively, each about one part of the protocol."""

from __future__ import annotations

from tests.model.acting import Step
from tests.model.choices import Configuration
from tests.model.state import Key, Request
from tests.model.world import Plan, reader


def plan(intent: str, domain: str = "D", *, reads=(), expects=False, late_reads=(), late_observes=(), child_of=None, **more):
    """What one agent wants."""
    request = Request(intent, domain, agent=more.pop("agent", intent.upper()), **more)
    return Plan(request, tuple(reads), expects, tuple(late_reads), tuple(late_observes), child_of)


def may(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


def key(intent: str, attempt: int = 1) -> Key:
    return intent, 0, attempt


def prepared(number: int) -> Step:
    return Step("prepare", (number,))


def ran(intent: str, attempt: int = 1) -> Step:
    return Step("run", (key(intent, attempt),))


def committed(intent: str, closure: str = "require", attempt: int = 1) -> Step:
    return Step("commit", (key(intent, attempt), closure))


def held(number: int, intent: str, attempt: int = 1) -> tuple[Step, ...]:
    """An effect that ran and waits: of a branch, or of something undecided."""
    return prepared(number), ran(intent, attempt), committed(intent, "hold", attempt)


def looked(number: int, domain: str = "D") -> Step:
    return Step("look", (reader(number), domain))


RACE = Configuration(
    "two intents of a domain and a reader: leases run out, holders finish late or die",
    (plan("a"), plan("b", reads="D", expects=True), plan("r", "E", reads="D")),
    may("two looks", "expire", "sweep", "abort", "none", "late", "die", "did_not_happen", "happened"),
    depth=7,
    attempts=2,
)

SKEW = Configuration(
    "each of two intents reads the domain that the other writes",
    (plan("a", "D", reads="E"), plan("b", "E", reads="D"), plan("c", "D", reads="D", expects=True)),
    may("abort", "none", "renew", "lie"),
    depth=8,
)

TAKEOVER = Configuration(
    "an expired lease is taken over, while the old holder may be slow; a reader looks on",
    (
        plan("a", policy="takeover"),
        plan("a", policy="fence", agent="A2"),
        plan("r", "E", reads="D"),
    ),
    may("expire", "sweep", "abort", "none", "late", "die", "did_not_happen", "happened", "compensated", "undo"),
    depth=9,
    attempts=3,
    numbers_downstream=True,
)

MISMATCH = Configuration(
    "duplicates that mean another action, and what is released may become one",
    (plan("a"), plan("a", agent="A2", fingerprint="other"), plan("a", "E", policy="takeover", fingerprint="other")),
    may("expire", "abort", "none", "late", "lie", "sweep"),
    depth=8,
    attempts=2,
)

CHAIN = Configuration(
    "c observes b observes a: held, promoted, settled, rolled back",
    (plan("a", branch="p"), plan("b", observes=("a",)), plan("c", "E", observes=("b",))),
    may("hold", "promote", "settle", "abort", "abort_intent", "promote_intent", "promote_branch", "expire"),
    depth=6,
    start=held(0, "a"),
)

BRANCHES = Configuration(
    "two branches, one of which observes the other, decided in every way",
    (
        plan("a", branch="p"),
        plan("b", "E", branch="q", observes=("a",)),
        plan("c", branch="p"),
    ),
    may("abort_branch", "promote_branch", "again", "promote_intent", "abort_intent", "settle", "abort", "happened", "undo"),
    depth=8,
)

ENTANGLED = Configuration(
    "two branches that observe each other",
    (plan("a", branch="p"), plan("b", "E", branch="q", observes=("a",)), plan("c", branch="p", observes=("b",))),
    may("abort_branch", "promote_branch", "abort_intent", "settle", "compensated", "undo"),
    depth=7,
    start=held(0, "a"),
)

READERS = Configuration(
    "what is held is read: readers follow it and fall with it",
    (plan("a", branch="p"), plan("r", "E", reads="D"), plan("s", "D", reads="DE", expects=True)),
    may("two looks", "abort_branch", "promote_branch", "abort_intent", "settle"),
    depth=9,
    start=(prepared(0), ran("a")),
)

LATE = Configuration(
    "an effect in flight observes more",
    (plan("a", branch="p"), plan("b", "E", late_reads="D"), plan("c", "D", late_observes=("a", "b"), late_reads="D")),
    may("abort_branch", "promote_branch", "abort", "settle", "expire", "sweep"),
    depth=8,
)

INCIDENT = Configuration(
    "a config is written speculatively, a deployment rests on it, a third branch contradicts it",
    (
        plan("write", "config", branch="b"),
        plan("deploy", "service", branch="c", reads=("config",)),
        plan("contradict", "config", branch="a", reads=("config",), expects=True),
    ),
    may("abort_branch", "promote_branch", "undo", "compensated"),
    depth=10,
)

UNKNOWN = Configuration(
    "unknown outcomes of effects that rest on one another, reconciled in every way",
    (plan("a", branch="p"), plan("b", "E", observes=("a",)), plan("c", "F", observes=("b",))),
    may("abort", "abort_intent", "happened", "did_not_happen", "compensated", "over", "undo", "die", "expire", "settle"),
    depth=7,
    start=(*held(0, "a"), prepared(1), ran("b")),
)

EVIDENCE = Configuration(
    "an operator is mistaken, and the holder reports after all",
    (plan("a"), plan("r", "E", reads="D")),
    may("expire", "late", "mistake", "happened", "compensated", "undo", "lie", "abort", "none", "die"),
    depth=8,
    attempts=2,
    start=(prepared(0),),
)

COMPENSATION = Configuration(
    "what was rolled back is undone by a compensation that may itself fail",
    (plan("a", branch="p"), plan("b", "D", observes=("a",)), plan("r", "E", reads="D")),
    may("compensate", "abort_intent", "abort", "none", "expire", "sweep", "happened", "did_not_happen", "die"),
    depth=8,
    start=(*held(0, "a"), prepared(1), ran("b")),
    attempts=2,
)

COMPENSATED_TAKEOVER = Configuration(
    "a compensation of an attempt that could be taken over, whose holder may be slow",
    (plan("a", policy="takeover"), plan("n")),
    may("compensate", "expire", "sweep", "late", "happened", "did_not_happen", "compensated", "die", "none", "abort"),
    depth=8,
    start=(prepared(0), ran("a")),
    attempts=2,
    numbers_downstream=True,
)

LINEAGE = Configuration(
    "certificates descend from certificates, and what nobody certified has no children",
    (plan("a"), plan("b", "E", child_of="a"), plan("c", "D", child_of="b", observes=("a",), reads="E")),
    may("abort", "hold", "expire", "sweep"),
    depth=10,
)

CERTIFY = Configuration(
    "a request that asks to be certified over a moved read set, beside one that does not",
    (plan("a", "E", reads="D", on_stale="certify"), plan("b", "F", reads="D"), plan("c", "D")),
    may("abort", "happened", "compensated", "undo", "expire"),
    depth=9,
)

CASES = (
    RACE,
    SKEW,
    TAKEOVER,
    MISMATCH,
    CHAIN,
    BRANCHES,
    ENTANGLED,
    READERS,
    LATE,
    INCIDENT,
    UNKNOWN,
    EVIDENCE,
    COMPENSATION,
    COMPENSATED_TAKEOVER,
    LINEAGE,
    CERTIFY,
)
