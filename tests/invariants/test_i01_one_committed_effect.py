"""I1: one intent, at most one committed effect per namespace; executions never exceed admitted attempts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from effectfence_pg import FenceError, Fresh, Replay
from tests.support.rows import all_of, change, one
from tests.support.witness import Witness
from tests.support.world import World


def test_racers_for_one_intent_execute_it_once(world: World, tmp_path: Path) -> None:
    ledger = Witness(tmp_path / "ledger")

    def race(_: int) -> object:
        try:
            verdict = world.fence.prepare(world.request(), wait_seconds=30)
        except FenceError as refused:
            return refused.code
        if isinstance(verdict, Replay):
            return verdict.certificate.hash
        ledger.happened("charge:1")
        return world.fence.commit(verdict.prepared, "done").hash

    with ThreadPoolExecutor(12) as pool:
        answers = set(pool.map(race, range(24)))
    assert ledger.count() == 1
    assert answers == set(
        all_of(world.engine, "SELECT hash FROM effectfence.certificates WHERE namespace = :n", n=world.namespace)
    )


def test_executions_never_exceed_admitted_attempts(world: World, tmp_path: Path) -> None:
    """Every way back to a runnable intent is one more admitted attempt, and one more execution at the most."""
    ledger = Witness(tmp_path / "ledger")
    for ending in ("released", "cleared", "compensated", "taken over", "committed", "committed"):
        verdict = world.fence.prepare(world.request(on_lease_expiry="takeover"))
        if not isinstance(verdict, Fresh):
            continue
        ledger.happened("charge:1")
        prepared = verdict.prepared
        if ending == "released":
            world.fence.abort(prepared, "rejected", effect="none")
        elif ending == "cleared":
            world.fence.abort(prepared, "reset")
            world.fence.clear("charge:1", attempt=prepared.attempt, basis="holder_dead", evidence=1, operator="o")
        elif ending == "compensated":
            world.fence.abort(prepared, "reset")
            world.fence.reconcile("charge:1", attempt=prepared.attempt, outcome="compensated", evidence=1, operator="o")
        elif ending == "taken over":
            world.expire()
        else:
            world.fence.commit(prepared, "done")
    query = "SELECT count(*) FROM effectfence.transitions WHERE namespace = :n AND cause = 'admitted'"
    assert ledger.count() == one(world.engine, query, n=world.namespace) == 5
    states = "SELECT state FROM effectfence.effects WHERE namespace = :n ORDER BY attempt"
    assert all_of(world.engine, states, n=world.namespace) == ["released"] * 3 + ["superseded", "committed"]


def test_the_database_itself_keeps_a_second_certificate_out(world: World) -> None:
    world.commit()
    with pytest.raises(IntegrityError, match="uq_certificates_intent"):
        change(
            world.engine,
            "INSERT INTO effectfence.certificates (namespace, hash, intent_key, attempt, body, minted_at, "
            "args_digest, identity_digest) SELECT namespace, encode(sha256(body || '1'), 'hex'), intent_key, attempt, "
            "body || '1', minted_at, args_digest, identity_digest "
            "FROM effectfence.certificates WHERE namespace = :n",
            n=world.namespace,
        )


def test_a_committed_intent_admits_nobody_again(world: World) -> None:
    world.commit()
    for _ in range(3):
        assert isinstance(world.fence.prepare(world.request()), Replay)
    with world.engine.connect() as connection:
        attempts = connection.scalar(
            sa.text("SELECT max(attempt) FROM effectfence.effects WHERE namespace = :n"), {"n": world.namespace}
        )
    assert attempts == 1
