"""What is asked of model and fence, drawn at random: few names, so that everything meets everything."""

from __future__ import annotations

from hypothesis import strategies as st

INTENTS = ("a", "b", "c", "d", "e")
DOMAINS = ("D", "E", "F", "G")
BRANCHES = ("p", "q")
HOME = dict(zip(INTENTS, ("D", "E", "D", "F", "E"), strict=True))
"""Where each intent acts, when it is the same action."""

PICK = st.integers(0, 11)
INTENT = st.sampled_from(INTENTS)
BRANCH = st.sampled_from(BRANCHES)
RESULT = st.sampled_from(("done", "done", "done", "other"))
READING = st.sampled_from(("as it is", "as it is", "bare", "doubted", "old"))
READS = st.lists(st.tuples(st.sampled_from(DOMAINS), READING), max_size=2, unique_by=lambda read: read[0])
OBSERVES = st.lists(PICK, max_size=2, unique=True)
EDITS = st.sampled_from(("token", "intent", "attempt", "domain", "seq", "fingerprint", "agent", "branch"))

REQUESTS = st.fixed_dictionaries(
    {"intent": INTENT},
    optional={
        "branch": BRANCH,
        "reads": READS,
        "observes": OBSERVES,
        "expects": st.integers(-1, 0),
        "parent": PICK,
        "what": st.sampled_from(("x", "x", "x", "y")),
        "elsewhere": st.sampled_from(DOMAINS),
        "agent": st.sampled_from(("ann", "bob")),
        "policy": st.sampled_from(("fence", "takeover", "takeover", "verify")),
        "on_stale": st.sampled_from(("fail", "certify")),
        "clock": st.dictionaries(st.sampled_from(("ann", "zoe")), st.integers(0, 3), max_size=2),
        "undoable": st.booleans(),
        "note": st.integers(0, 1),
    },
)
