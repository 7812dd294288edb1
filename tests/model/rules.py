"""The rules that the protocol must not lose, each a switch: with one off, a violation comes back.

`DAGGERS` are the rules that the protocol marks with a dagger, because they invite simplification; `FURTHER` are rules that it
does not mark and that are needed as well.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Rules:
    # -- reading
    number_before_value: bool = True
    """A reader reads the domain's number first, then the world."""
    unsettled_stays_unsettled: bool = True
    """An entry that was observed unsettled is refused, whatever became of it since."""
    expected_is_an_entry: bool = True
    """`expected_seq` is a read-set entry of the own domain: same gates, and checked again at commit."""
    own_number_compared: bool = True
    """At commit an entry of the own domain is compared with the own number, instead of being left out."""
    # -- closures
    dead_count_alike: bool = True
    """Released and superseded members are as dead as failed and aborted ones."""
    exits_cascade: bool = True
    """Every exit to a dead state aborts the dependents."""
    unheard_exits_cascade: bool = True
    """Lease expiry and a stale commit included."""
    read_set_before_undecided: bool = True
    """Commit looks at the read set before it holds the effect for an undecided closure."""
    executed_checked_once: bool = True
    """The read set of an executed effect is not checked again, at commit, settle or promote."""
    # -- branches
    decided_branch_refuses: bool = True
    """A decided branch takes no more effects."""
    promoted_by_branch: bool = True
    """An effect with a branch is promoted by its branch only, and an open branch is not reached into."""
    rollback_without_ticket: bool = True
    """abort_branch and abort_intent need no ticket."""
    # -- leases and attempts
    admitted_policy_decides: bool = True
    """What an expired lease means is decided by the admitted row, not by the duplicate."""
    takeover_mutes_none: bool = True
    """After a takeover, "nothing happened" speaks for the own attempt only: failed, not released."""
    aborted_keeps_lease: bool = True
    """An effect aborted in flight keeps its lease; until that ends nobody reconciles or compensates it."""
    number_per_intent: bool = True
    """Downstream keeps the highest number of each intent, not of each domain."""
    # -- unknown outcomes
    late_evidence_fences: bool = True
    """A result for a released effect fences the intent again."""
    judgement_names_attempt: bool = True
    """A judgement is about the attempt it names; another current one is refused."""
    happened_obeys_predicate: bool = True
    """`happened` records the result and then obeys the commit predicate."""
    # -- compensation
    compensation_closes: bool = True
    """The admission of a compensation closes its target to late completion and to `happened`."""
    compensation_keyed_apart: bool = True
    """A compensation is keyed by what it undoes in columns, not by a name that an intent could have."""
    undo_by_meaning: bool = True
    """A compensation takes back its target's effect, and never restores an earlier value."""
    # -- not marked
    compensation_blocks_takeover: bool = True
    """The target of an unresolved compensation is not taken over."""
    compensation_blocks_release: bool = True
    """The target of an unresolved compensation is released by that compensation only."""
    in_flight_unobservable: bool = True
    """An effect in flight has no result that anybody could have observed."""
    exit_takes_number: bool = True
    """An exit to a dead state advances the domain's number."""

    def without(self, *names: str) -> Rules:
        return replace(self, **dict.fromkeys(names, False))


FURTHER = (
    "compensation_blocks_takeover",
    "compensation_blocks_release",
    "in_flight_unobservable",
    "exit_takes_number",
)
DAGGERS = tuple(field.name for field in fields(Rules) if field.name not in FURTHER)

RULES = Rules()
