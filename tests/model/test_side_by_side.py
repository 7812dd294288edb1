"""The fence does what the model does: the same verdicts and the same rows, after every step of random histories.

The model is checked for the invariants by itself (test_invariants_hold.py); this carries what holds there over to the code.
`scripts/test tests/model/test_side_by_side.py --hypothesis-profile=long` runs 2,000 examples; `--hypothesis-seed` repeats them.
"""

from __future__ import annotations

import random

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.asking import INTENTS
from tests.model.machine import SideBySide
from tests.model.real import Real
from tests.support.servers import libpq_url

SHORT = settings(max_examples=30, stateful_step_count=25, deadline=None)
"""What every run of the tests has time for."""


def test_the_fence_does_what_the_model_does(
    database_url: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings() if request.config.getoption("--hypothesis-profile") else SHORT
    given = request.config.getoption("--hypothesis-seed")
    number = random.randrange(2**32) if given is None else int(given)
    # Nothing here has to outlive the server.
    engine = sa.create_engine(database_url, connect_args={"options": "-c synchronous_commit=off"})
    look_options = "-c enable_seqscan=off -c synchronous_commit=off"
    with psycopg.connect(libpq_url(database_url), autocommit=True, options=look_options) as look:

        @seed(number)
        class Machine(SideBySide):
            @staticmethod
            def make(own_transaction: bool) -> Real:
                return Real(engine, look, INTENTS, own_transaction=own_transaction)

        Machine.counts.clear()
        try:
            run_state_machine_as_test(Machine, settings=settings(chosen, suppress_health_check=list(HealthCheck)))
        finally:
            engine.dispose()
            told = (
                f"side by side: seed {number}, {Machine.counts['examples']} examples, {Machine.counts['steps']} steps"
            )
            with capsys.disabled():
                print(f"\n{told}")  # noqa: T201 (the figures of a long run)
