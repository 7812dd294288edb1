"""The test of the test: every rule, switched off, brings its violation back; switched on, it keeps it away."""

from __future__ import annotations

import pytest

from tests.model.broken import Broken
from tests.model.broken_closures import BROKEN_CLOSURES
from tests.model.broken_outcomes import BROKEN_OUTCOMES
from tests.model.explorer import explore
from tests.model.rules import DAGGERS, FURTHER, RULES

BROKEN = (*BROKEN_CLOSURES, *BROKEN_OUTCOMES)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.rule)
def test_a_rule_left_out_brings_its_violation_back(broken: Broken) -> None:
    left_out = explore(broken.case, RULES.without(broken.rule, *broken.beside), watched=(broken.invariant,))
    assert left_out.violation is not None, "the rule is of no use here"
    assert left_out.violation.invariant == broken.invariant

    kept = explore(broken.case, RULES.without(*broken.beside), watched=(broken.invariant,))
    assert kept.violation is None, str(kept.violation)

    whole = explore(broken.case)
    assert whole.violation is None, str(whole.violation)


def test_every_rule_is_put_to_the_test() -> None:
    assert sorted(broken.rule for broken in BROKEN) == sorted(DAGGERS + FURTHER)
