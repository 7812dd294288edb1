"""The other verbs as operations: which statement, with which parameters, and what its row means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from effectfence_pg.errors import DomainRace
from effectfence_pg.protocol import completion as completing
from effectfence_pg.protocol import reconciliation as reconciling
from effectfence_pg.protocol import reporting
from effectfence_pg.protocol.verdicts import require_serializable
from effectfence_pg.sql import commits, completion, observation, reconciliation
from effectfence_pg.sql.fencing import fence_before
from effectfence_pg.sql.operation import Operation, Then
from effectfence_pg.values import key_of

if TYPE_CHECKING:
    from effectfence_pg.protocol.reconciliation import Judgement
    from effectfence_pg.values import (
        EffectCert,
        EffectStatus,
        Held,
        PreparedEffect,
        ReadSetEntry,
        RolledBack,
    )


def ticket_parameters(prepared: PreparedEffect) -> dict[str, Any]:
    """What identifies the effect of a ticket, and what is compared with it."""
    args_digest = prepared.args_digest
    return {
        "namespace": prepared.namespace,
        "intent_key": prepared.intent_key,
        "attempt": prepared.attempt,
        "token": prepared.token,
        "domain_key": prepared.domain_key,
        "seq": prepared.seq,
        # No row has the empty digest: a ticket that contradicts itself moves nothing, and is told where it was edited.
        "args_digest": args_digest if prepared.fingerprint == args_digest.hex() else b"",
        "agent": prepared.agent,
        "branch": prepared.branch,
        "actor": prepared.agent,
    }


def commit(prepared: PreparedEffect, result: str, *, asked: bool, member_limit: int) -> Operation[EffectCert | Held]:
    """Commit: one conditional update for an effect that rests on nothing undecided, the whole decision otherwise."""
    parameters = ticket_parameters(prepared)
    parameters["result"] = result

    def decide() -> Operation[EffectCert | Held]:
        return Operation(
            "commit",
            commits.commit_decide(),
            {**parameters, "asked": asked, "member_limit": member_limit},
            lambda row: completing.interpret_commit(prepared, result, row, asked=asked, member_limit=member_limit),
            many=True,
        )

    rests = bool(prepared.observing or prepared.read_set)
    if prepared.branch is not None or (rests and not asked):
        # Nobody holds what could be committed: that something is undecided is all but known.
        return decide()
    return Operation(
        "commit",
        commits.commit_rested() if rests else commits.commit_plain(),
        parameters,
        lambda row: completing.interpret_plain(prepared, row) or Then(decide()),
    )


def abort(prepared: PreparedEffect, reason: str, *, no_effect: bool) -> Operation[RolledBack]:
    """Give up an attempt, or roll back what it recorded."""
    parameters = {**ticket_parameters(prepared), "reason": reason, "no_effect": no_effect, "operation": uuid4()}
    return Operation(
        "abort",
        completion.abort(),
        parameters,
        lambda row: completing.interpret_abort(prepared, row, no_effect=no_effect),
        many=True,
    )


def renew(prepared: PreparedEffect) -> Operation[PreparedEffect]:
    """Extend the lease."""
    return Operation(
        "renew",
        completion.renew(),
        ticket_parameters(prepared),
        lambda row: completing.interpret_renew(prepared, row),
    )


def reconcile(
    judgement: Judgement, *, namespace: str, operator: str, evidence: str, over: bool, member_limit: int
) -> Operation[None]:
    """Record what an operator found out; an expired lease that nobody fenced yet is fenced before."""
    key = key_of(judgement.intent)
    parameters = {
        "namespace": namespace,
        "intent_key": key,
        "attempt": judgement.attempt,
        "outcome": judgement.outcome.value,
        "result": judgement.result,
        "evidence": evidence,
        "actor": operator,
        "over": over,
        "member_limit": member_limit,
        "operation": judgement.operation,
    }

    def interpret(row: Any) -> Then[None] | None:
        verdict = reconciling.interpret_reconcile(judgement, row)
        return None if verdict is None else Then(fence_before(again(), namespace, key, verdict.attempt, operator))

    def again() -> Operation[None]:
        return Operation("reconcile", reconciliation.reconcile(), parameters, interpret, many=True)

    return again()


def observe(namespace: str, domains: tuple[str, ...]) -> Operation[tuple[ReadSetEntry, ...]]:
    """The number of each domain and whether it is settled."""
    parameters = {"namespace": namespace, "keys": [key_of(domain) for domain in domains]}
    return Operation(
        "observe", observation.observe(), parameters, lambda row: reporting.entries(domains, row), writes=False
    )


def reserve(namespace: str, domain: str, expected_seq: int) -> Operation[int]:
    """The bare compare-and-set; the new number."""

    def interpret(row: Any) -> int:
        require_serializable(row)
        seq = row.own_seq if row.seq is None else row.seq
        if seq is None:
            raise DomainRace(domain=domain, expected=expected_seq, actual=row.live_seq)
        return int(seq)

    parameters = {
        "namespace": namespace,
        "domain": domain,
        "domain_key": key_of(domain),
        "expected_seq": expected_seq,
        "operation": uuid4(),
    }
    return Operation("reserve", observation.reserve(), parameters, interpret)


def status(namespace: str, intent: str) -> Operation[EffectStatus]:
    """Where the intent stands."""
    parameters = {"namespace": namespace, "intent_key": key_of(intent), "member_limit": observation.SHOWN_MEMBERS}
    return Operation(
        "status", observation.status(), parameters, lambda row: reporting.status(namespace, intent, row), writes=False
    )
