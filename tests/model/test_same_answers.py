"""I11 and I12: namespaces do not meet, and the same inputs give the same answers in every process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.model.acting import act
from tests.model.choices import steps
from tests.model.configurations import CHAIN, EVERYTHING, INCIDENT, MISMATCH
from tests.model.explorer import beginning, explore


@pytest.mark.parametrize("case", [CHAIN, MISMATCH], ids=lambda case: case.name)
def test_i12_the_same_step_gives_the_same_answer(case) -> None:
    found = explore(case, depth=case.depth - 1, watched=("I12",))
    assert found.violation is None, str(found.violation)


def test_i12_every_process_gives_the_same_answers() -> None:
    digests = {_digest_in_a_process(hash_seed) for hash_seed in ("0", "1", "2")}
    assert len(digests) == 1


def _digest_in_a_process(hash_seed: str) -> str:
    root = Path(__file__).parents[2]
    program = "from tests.model.test_same_answers import digest; print(digest())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def digest() -> str:
    """A digest of everything stored and answered on a few walks."""
    heard = [str((after.fence, verdict)) for seed in range(5) for _, after, verdict in _walked(INCIDENT, seed, 40)]
    return sha256("\n".join(heard).encode()).hexdigest()


def _walked(case, seed: int, length: int):
    scene = case.scene()
    situation = beginning(case, scene)
    rng = random.Random(seed)
    for _ in range(length):
        step = rng.choice(list(steps(situation, case, scene)))
        situation, verdict = act(situation, step, scene)
        yield step, situation, verdict


def test_i11_namespaces_with_the_same_names_do_not_meet() -> None:
    """Each gets what it gets alone, however the calls of the two are mixed."""
    scene = EVERYTHING.scene()
    alone = {name: list(_walked(EVERYTHING, seed, 60)) for name, seed in (("one", 1), ("two", 2))}
    namespaces = dict.fromkeys(alone, beginning(EVERYTHING, scene))
    rng = random.Random(3)
    left = {name: list(reversed(walked)) for name, walked in alone.items()}
    while any(left.values()):
        name = rng.choice([name for name, walked in left.items() if walked])
        step, expected, verdict = left[name].pop()
        namespaces[name], answered = act(namespaces[name], step, scene)
        assert (namespaces[name], answered) == (expected, verdict)
