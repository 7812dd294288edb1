"""The judge of a rollback storm. It knows the plans, what happened in the world, and which certificates there are.

No fence is asked for a verdict: who was rolled back is what the plan says, what ran is what the tools themselves wrote down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from effectfence_pg.cli.rollback_storm_plans import Plan


@dataclass(slots=True)
class Judgement:
    """What was found.

    Attributes:
        committed: Effects with a certificate.
        aborted: Effects whose tool ran and that have none.
        refused: Effects whose tool never ran.
        invalid_commits: Certificates of a branch that was rolled back, or of an effect that rests on one which is rolled back
            or has no certificate.
        partial_closures: Branches and closures of which a part is committed and another part ran and is not.
    """

    committed: int = 0
    aborted: int = 0
    refused: int = 0
    invalid_commits: int = 0
    partial_closures: int = 0


def judge(plans: Iterable[Plan], *, ran: AbstractSet[str], certified: AbstractSet[str]) -> Judgement:
    """Compare the plans with what became of them.

    Args:
        plans: What was tried.
        ran: Intents whose tool ran.
        certified: Intents with a certificate.
    """
    found = Judgement()
    for plan in plans:
        committed = certified & plan.steps.keys()
        left_out = (ran & plan.steps.keys()) - committed
        rolled_back = {intent for intent, step in plan.steps.items() if step.branch in plan.contradicted}
        found.committed += len(committed)
        found.aborted += len(left_out)
        found.refused += len(plan.steps.keys() - ran - committed)
        for intent in committed:
            below = plan.rests_on(intent)
            found.invalid_commits += intent in rolled_back or bool(below & rolled_back) or not below <= committed
            found.partial_closures += bool(below & left_out)
        for branch in plan.branches:
            own = {intent for intent, step in plan.steps.items() if step.branch == branch}
            found.partial_closures += bool(own & committed) and bool(own & left_out)
    return found
