"""The small cases that are explored exhaustively, each about one part of the protocol."""

from __future__ import annotations

from tests.model.acting import Step
from tests.model.choices import Configuration
from tests.model.shorthand import held, key, may, plan, prepared, ran
from tests.model.state import Ticket

UNKNOWN_TICKET = Ticket("a", 0, 1, ("a", 0, 9), "D", 1, "f", "A", None)
EDITED_TICKET = Ticket("a", 0, 1, key("a"), "D", 9, "f", "A", None)

RACE = Configuration(
    "two intents of a domain and a reader: leases run out, holders finish late or die",
    (plan("a"), plan("b", reads="D", expects=True), plan("r", "E", reads="D")),
    may("two looks", "expire", "sweep", "abort", "none", "late", "die", "did_not_happen", "happened"),
    depth=6,
    attempts=2,
)

SKEW = Configuration(
    "each of two intents reads the domain that the other writes",
    (plan("a", "D", reads="E"), plan("b", "E", reads="D"), plan("c", "D", reads="D", expects=True)),
    may("abort", "none", "renew", "lie"),
    depth=7,
)

TAKEOVER = Configuration(
    "an expired lease is taken over, while the old holder may be slow; a reader looks on",
    (
        plan("a", policy="takeover"),
        plan("a", policy="fence", agent="A2"),
        plan("r", "E", reads="D"),
    ),
    may("expire", "sweep", "abort", "none", "late", "die", "did_not_happen", "happened", "compensated", "undo"),
    depth=6,
    attempts=3,
    numbers_downstream=True,
)

MISMATCH = Configuration(
    "duplicates that mean another action, and what is released may become one",
    (plan("a"), plan("a", agent="A2", fingerprint="other"), plan("a", "E", fingerprint="other")),
    may("expire", "abort", "none", "late", "lie", "sweep"),
    depth=8,
    attempts=2,
    always=(
        *(Step("stranger", (verb, UNKNOWN_TICKET)) for verb in ("commit", "abort", "renew", "observe_late")),
        *(Step("stranger", (verb, EDITED_TICKET)) for verb in ("commit", "abort", "renew", "observe_late")),
        Step("reconcile", (key("a", 3), "compensated")),
        Step("reconcile", (key("nobody"), "compensated")),
        Step("find_nothing", (key("a"), None)),
        Step("abort_intent", ("a", 3)),
        Step("abort_branch", ("nowhere",)),
        Step("reconcile_branch", ("nowhere",)),
        Step("promote", ("nobody",)),
        Step("compensate", ("nobody", 1)),
    ),
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
    may(
        "abort_branch",
        "promote_branch",
        "again",
        "promote_intent",
        "abort_intent",
        "settle",
        "abort",
        "happened",
        "undo",
    ),
    depth=6,
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
    depth=5,
)

INCIDENT = Configuration(
    "a config is written speculatively, a deployment rests on it, a third branch contradicts it",
    (
        plan("write", "config", branch="b"),
        plan("deploy", "service", branch="c", reads=("config",)),
        plan("contradict", "config", branch="a", reads=("config",), expects=True),
    ),
    may("abort_branch", "promote_branch", "undo", "compensated"),
    depth=8,
)

UNKNOWN = Configuration(
    "unknown outcomes of effects that rest on one another, reconciled in every way",
    (plan("a", branch="p"), plan("b", "E", observes=("a",)), plan("c", "F", observes=("b",))),
    may(
        "abort", "abort_intent", "happened", "did_not_happen", "compensated", "over", "undo", "die", "expire", "settle"
    ),
    depth=5,
    start=(*held(0, "a"), prepared(1), ran("b")),
)

EVIDENCE = Configuration(
    "an operator is mistaken, and the holder reports after all",
    (plan("a"), plan("r", "E", reads="D")),
    may("expire", "late", "mistake", "happened", "compensated", "undo", "lie", "abort", "none", "die"),
    depth=7,
    attempts=2,
    start=(prepared(0),),
)

COMPENSATION = Configuration(
    "what was rolled back is undone by a compensation that may itself fail",
    (plan("a", branch="p"), plan("b", "D", observes=("a",)), plan("r", "E", reads="D")),
    may("compensate", "abort_intent", "abort", "none", "expire", "sweep", "happened", "did_not_happen", "die"),
    depth=4,
    start=(*held(0, "a"), prepared(1), ran("b")),
    attempts=2,
)

COMPENSATED_TAKEOVER = Configuration(
    "a compensation of an attempt that could be taken over, whose holder may be slow",
    (plan("a", policy="takeover"),),
    may("compensate", "late", "happened", "did_not_happen", "compensated", "die", "none", "abort", "expire", "sweep"),
    depth=7,
    start=(prepared(0), ran("a"), Step("expire", (key("a"),))),
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
    depth=7,
)

EVERYTHING = Configuration(
    "five agents and everything that may happen, for long walks",
    (
        plan("a", branch="p", reads="E"),
        plan("b", "E", branch="q", observes=("a",), late_reads="D"),
        plan("c", "D", reads="DE", expects=True),
        plan("d", "E", policy="takeover", late_observes=("a",)),
        plan("d", "E", agent="D2", reads="D"),
        plan("e", "D", child_of="c", branch="p", on_stale="certify", reads="E"),
    ),
    may(
        "two looks", "expire", "sweep", "settle", "abort", "none", "renew", "late", "die", "lie", "hold", "promote",
        "again", "abort_branch", "abort_intent", "promote_branch", "promote_intent", "compensate", "undo", "happened",
        "did_not_happen", "compensated", "over", "mistake", "judge",
    ),
    depth=0,
    attempts=3,
    numbers_downstream=True,
)  # fmt: skip

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
