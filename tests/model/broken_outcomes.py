"""What comes back when a rule about leases, unknown outcomes or compensation is left out."""

from __future__ import annotations

from tests.model.acting import Step
from tests.model.broken import Broken, small
from tests.model.shorthand import held, key, plan, prepared, ran

BROKEN_OUTCOMES = (
    Broken(
        "admitted_policy_decides",
        "I1",
        small(
            "a duplicate would take over what must not run twice",
            (plan("a"), plan("a", policy="takeover", agent="A2")),
            "expire",
            depth=4,
            attempts=2,
            start=(prepared(0),),
        ),
    ),
    Broken(
        "takeover_mutes_none",
        "I1",
        small(
            "the second holder did nothing, the first one did",
            (plan("a", policy="takeover"),),
            "expire",
            "none",
            depth=5,
            attempts=2,
        ),
    ),
    Broken(
        "aborted_keeps_lease",
        "I1",
        small(
            "an effect is compensated while its tool is about to run",
            (plan("a", branch="p"), plan("b", "E", observes=("a",))),
            "abort_intent",
            "compensate",
            depth=5,
            start=(*held(0, "a"), prepared(1)),
        ),
    ),
    Broken(
        "number_per_intent",
        "I8",
        small("a neighbour is faster", (plan("a"), plan("b")), depth=4, numbers_downstream=True),
    ),
    Broken(
        "late_evidence_fences",
        "I1",
        small(
            "a slow holder reports after its attempt was released",
            (plan("a"),),
            "expire",
            "late",
            "mistake",
            depth=6,
            attempts=2,
        ),
    ),
    Broken(
        "judgement_names_attempt",
        "I1",
        small(
            "a judgement arrives when another attempt is current",
            (plan("a"),),
            "did_not_happen",
            "judge",
            "abort",
            depth=6,
            attempts=2,
            start=(prepared(0), Step("die", (key("a"),)), Step("expire", (key("a"),)), Step("judge", ("a", 1))),
        ),
    ),
    Broken(
        "happened_obeys_predicate",
        "I4",
        small(
            "what happened rests on what is undecided",
            (plan("a", branch="p"), plan("b", "E", observes=("a",))),
            "abort",
            "happened",
            depth=4,
            start=(*held(0, "a"), prepared(1)),
        ),
    ),
    Broken(
        "compensation_closes",
        "I1",
        small(
            "a slow holder reports while its effect is being undone",
            (plan("a"),),
            "compensate",
            depth=4,
            start=(prepared(0), ran("a"), Step("expire", (key("a"),)), Step("sweep")),
        ),
    ),
    Broken(
        "compensation_keyed_apart",
        "I1",
        small(
            "an intent has the name that a compensation would have",
            (plan("a", branch="p"), plan("undo:a:1")),
            "compensate",
            "abort_intent",
            depth=5,
            start=held(0, "a"),
        ),
    ),
    Broken(
        "undo_by_meaning",
        "I1",
        small(
            "a neighbour commits before the compensation",
            (plan("a", branch="p"), plan("n")),
            "compensate",
            "abort_intent",
            depth=6,
            start=held(0, "a"),
        ),
    ),
    Broken(
        "compensation_blocks_takeover",
        "I1",
        small(
            "an expired attempt is taken over while it is being undone",
            (plan("a", policy="takeover"),),
            "compensate",
            depth=5,
            attempts=2,
            start=(prepared(0), ran("a"), Step("expire", (key("a"),)), Step("sweep")),
        ),
    ),
    Broken(
        "compensation_blocks_release",
        "I1",
        small(
            "an attempt is released by hand while it is being undone",
            (plan("a", policy="takeover"),),
            "compensate",
            "undo",
            "compensated",
            depth=7,
            attempts=2,
            start=(prepared(0), ran("a"), Step("abort", (key("a"),)), Step("die", (key("a"),))),
        ),
    ),
    Broken(
        "in_flight_unobservable",
        "I3",
        small(
            "two effects in flight observe each other",
            (plan("a", late_observes=("b",)), plan("b", observes=("a",))),
            depth=3,
        ),
    ),
    Broken(
        "exit_takes_number",
        "I13",
        small(
            "what was read is rolled back and done again",
            (plan("a", branch="p"), plan("r", "E", reads="D")),
            "abort_intent",
            "undo",
            "compensated",
            depth=7,
            start=held(0, "a"),
        ),
    ),
)
