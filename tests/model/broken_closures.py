"""What comes back when a rule about reading, closures or branches is left out."""

from __future__ import annotations

from tests.model.broken import Broken, small
from tests.model.shorthand import held, looked, plan, prepared, ran

WRITER_AND_READER = (plan("w"), plan("r", "E", reads="D"))

BROKEN_CLOSURES = (
    Broken(
        "number_before_value",
        "I13",
        small("the value is read, written, and then numbered", WRITER_AND_READER, "two looks", depth=8),
    ),
    Broken(
        "unsettled_stays_unsettled",
        "I13",
        small("what was read while it was written is settled by the time it is used", WRITER_AND_READER, depth=7),
    ),
    Broken(
        "expected_is_an_entry",
        "I13",
        small("a neighbour writes after the compare-and-set", (plan("w"), plan("r", reads="D", expects=True)), depth=6),
    ),
    Broken(
        "own_number_compared",
        "I13",
        small("a neighbour writes after the compare-and-set", (plan("w"), plan("r", reads="D", expects=True)), depth=6),
    ),
    Broken(
        "dead_count_alike",
        "I4",
        small(
            "what was rolled back is compensated, and what rested on it is said to have happened",
            (plan("a", branch="p"), plan("b", "E", observes=("a",))),
            "abort_intent",
            "compensated",
            "undo",
            "happened",
            depth=6,
            start=(*held(0, "a"), prepared(1), ran("b")),
        ),
    ),
    Broken(
        "exits_cascade",
        "I5",
        small(
            "what was observed is rolled back",
            (plan("a", branch="p"), plan("b", "E", observes=("a",))),
            "abort_intent",
            depth=5,
        ),
    ),
    Broken(
        "unheard_exits_cascade",
        "I5",
        small(
            "what was observed in flight is not heard of any more",
            (plan("a"), plan("b", "E", observes=("a",))),
            "expire",
            "sweep",
            depth=4,
        ),
        beside=("in_flight_unobservable",),
    ),
    Broken(
        "read_set_before_undecided",
        "I13",
        small(
            "what was read changes, while what was observed is undecided",
            (plan("a", "E", branch="p"), plan("w"), plan("b", "F", reads="D", observes=("a",))),
            depth=6,
            start=(*held(0, "a"), looked(2), prepared(2), ran("b")),
        ),
    ),
    Broken(
        "executed_checked_once",
        "I14",
        small(
            "what was read changes, while the effect is held",
            (plan("a", "E", branch="p", reads="D"), plan("w")),
            depth=5,
        ),
    ),
    Broken(
        "decided_branch_refuses",
        "I5",
        small(
            "an effect joins a branch that was aborted",
            (plan("a", branch="p"), plan("b", branch="p")),
            "abort_branch",
            depth=3,
        ),
    ),
    Broken(
        "promoted_by_branch",
        "I4",
        small(
            "one effect of a branch is promoted",
            (plan("a", branch="p"), plan("b", "E", observes=("a",))),
            "promote_intent",
            depth=4,
        ),
    ),
    Broken(
        "rollback_without_ticket",
        "I14",
        small("a held effect whose agent died", (plan("a", branch="p"),), "die", depth=4),
    ),
)
