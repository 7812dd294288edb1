"""The fence does what the model does: the same verdicts and the same rows, after every step of random histories.

The model is checked for the invariants by itself (test_invariants_hold.py); this carries what holds there over to the code.
`scripts/test tests/model/test_side_by_side.py --hypothesis-profile=long` runs 2,000 examples; `--hypothesis-seed` repeats them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.asking import INTENTS
from tests.model.machine import SideBySide
from tests.model.real import Real

if TYPE_CHECKING:
    import sqlalchemy as sa

SHORT = settings(max_examples=30, stateful_step_count=25, deadline=None)
"""What every run of the tests has time for."""


def test_the_fence_does_what_the_model_does(
    engine: sa.Engine, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings() if request.config.getoption("--hypothesis-profile") else SHORT
    given = request.config.getoption("--hypothesis-seed")
    number = random.randrange(2**32) if given is None else int(given)
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True, options="-c enable_seqscan=off") as look:

        @seed(number)
        class Machine(SideBySide):
            @staticmethod
            def make(own_transaction: bool) -> Real:
                return Real(engine, look, INTENTS, own_transaction=own_transaction)

        Machine.counts.clear()
        try:
            run_state_machine_as_test(Machine, settings=settings(chosen, suppress_health_check=list(HealthCheck)))
        finally:
            told = (
                f"side by side: seed {number}, {Machine.counts['examples']} examples, {Machine.counts['steps']} steps"
            )
            with capsys.disabled():
                print(f"\n{told}")  # noqa: T201 (the figures of a long run)
