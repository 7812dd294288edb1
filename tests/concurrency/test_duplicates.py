"""Many attempts at one action at the same moment, in threads and in processes: one runs it, the others are told so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from effectfence_pg import EffectCert, Fence, Fresh, IntentInFlight, Replay
from tests.support.actor import Actor, outcomes
from tests.support.racing import Race, await_waiting, claim_gate, of_kind
from tests.support.rows import one
from tests.support.witness import Witness
from tests.support.world import World

Crew = Callable[..., Sequence[Actor]]

DUPLICATES = 16
CHARGE = {"intent": "charge:1", "domain": "of:charge:1", "tool": "charge", "agent": "agent-a", "args": {"cents": 4900}}
CERTIFICATES = "SELECT count(*) FROM effectfence.certificates WHERE namespace = :namespace"


def charge(fence: Fence, witness: Witness) -> Any:
    verdict = fence.prepare(CHARGE)
    if isinstance(verdict, Replay):
        return verdict
    witness.happened("charge:1")
    return fence.commit(verdict.prepared, "charged")


def test_of_16_duplicates_in_threads_one_is_admitted_and_late_ones_replay_its_certificate(
    engine: sa.Engine, world: World, witness: Witness
) -> None:
    # Each with a fence of its own: none of them knows what another one has seen.
    fences = [Fence(engine, namespace=world.namespace) for _ in range(DUPLICATES)]
    with claim_gate(engine, world.namespace, "charge:1"):
        race = Race([lambda fence=fence: fence.prepare(CHARGE) for fence in fences]).start()
        await_waiting(engine, DUPLICATES)
    results = race.results()
    admitted = of_kind(results, Fresh)
    assert len(admitted) == 1, results
    assert len(of_kind(results, IntentInFlight)) == DUPLICATES - 1, results
    assert admitted[0].prepared.token == world.effect()["token"]
    witness.happened("charge:1")
    certificate = world.fence.commit(admitted[0].prepared, "charged")
    assert isinstance(certificate, EffectCert)
    late = Race([lambda fence=fence: charge(fence, witness) for fence in fences]).start().results()
    assert [type(verdict) for verdict in late] == [Replay] * DUPLICATES
    assert all(verdict.certificate == certificate for verdict in late)
    assert witness.count() == 1


def test_of_16_duplicates_in_4_processes_one_executes_and_late_ones_replay_its_certificate(
    engine: sa.Engine, crew: Crew, namespace: str, witness: Witness
) -> None:
    racers = crew()
    with claim_gate(engine, namespace, "charge:1"):
        for racer in racers:
            racer.start(*[("charge", CHARGE)] * 4)
        await_waiting(engine, DUPLICATES)
    results = outcomes(racers)
    for racer in racers:
        racer.start(*[("charge", CHARGE)] * 4)
    late = outcomes(racers)
    kinds = [result["kind"] for result in results]
    assert kinds.count("committed") == 1, results
    assert kinds.count("intent_in_flight") + kinds.count("replay") == DUPLICATES - 1, results
    hashes = {result["hash"] for result in [*results, *late] if "hash" in result}
    assert [result["kind"] for result in late] == ["replay"] * DUPLICATES
    assert len(hashes) == 1
    assert witness.count() == 1
    assert one(engine, CERTIFICATES, namespace=namespace) == 1


def test_the_same_intent_of_two_tenants_is_two_effects(
    engine: sa.Engine, processes: list[Actor], crew: Crew, namespace: str, witness: Witness
) -> None:
    other = f"{namespace}-other"
    ours, theirs = crew(processes[:2]), crew(processes[2:], other)
    for racer in processes:
        racer.start(*[("charge", CHARGE)] * 4)
    kinds = [{result["kind"] for result in outcomes(racers)} for racers in (ours, theirs)]
    assert all("committed" in seen and seen <= {"committed", "replay", "intent_in_flight"} for seen in kinds), kinds
    assert witness.count() == 2
    assert [one(engine, CERTIFICATES, namespace=tenant) for tenant in (namespace, other)] == [1, 1]
