"""Every verb as an operation: which statement, with which parameters, and what its row means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from effectfence_pg.errors import DomainRace
from effectfence_pg.protocol import admission as admitting
from effectfence_pg.protocol import completion as completing
from effectfence_pg.protocol import reconciliation as reconciling
from effectfence_pg.protocol import reporting
from effectfence_pg.protocol.admission import Admission, Fence, Replace, Undecided
from effectfence_pg.protocol.states import State
from effectfence_pg.protocol.verdicts import require_serializable
from effectfence_pg.sql import admission, commits, completion, observation, reconciliation
from effectfence_pg.sql.operation import Operation, Then
from effectfence_pg.values import key_of
from effectfence_pg.values.canonical import canonical_json, read_json

if TYPE_CHECKING:
    from effectfence_pg.protocol.reconciliation import Judgement
    from effectfence_pg.values import (
        EffectCert,
        EffectStatus,
        Fresh,
        Held,
        PreparedEffect,
        ReadSetEntry,
        Replay,
        RolledBack,
    )

SHOWN_MEMBERS = 10_000
"""How far a status looks for what an effect waits for; it names only a few of them."""

FENCE_ACTOR = "effectfence"
"""The actor on record when the fence itself acts: an expired lease that nobody in particular noticed."""


def replay(call: Admission) -> Operation[Fresh | Replay]:
    """Read the certificate of an intent that is known to have one. Where it is gone after all, everything is asked anew."""
    return Operation(
        "prepare",
        admission.sealed(),
        {"namespace": call.namespace, "intent_key": call.request.intent_key},
        lambda row: Then(prepare(call)) if row is None else admitting.sealed(call, row),
        writes=False,
    )


def prepare(call: Admission, *, known: bool = False) -> Operation[Fresh | Replay]:
    """Pass the gates; in place of another attempt one more statement decides.

    Args:
        call: What is asked.
        known: The intent is probably on record: look before claiming. A wrong guess costs one more round trip.
    """
    request = call.request
    rests = admitting.rests(call)

    def onward(verdict: admitting.Verdict) -> Fresh | Replay | Then[Fresh | Replay]:
        if isinstance(verdict, Replace):
            return Then(_replace(call, verdict))
        if isinstance(verdict, Undecided):
            return Then(_held(call))
        if isinstance(verdict, Fence):
            return Then(fence_before(prepare(call), call.namespace, request.intent_key, verdict.attempt, request.agent))
        return verdict

    if known:
        return Operation(
            "prepare",
            admission.look(),
            {"namespace": call.namespace, "intent_key": request.intent_key},
            lambda row: Then(prepare(call)) if row is None else onward(admitting.on_record(call, row)),
            writes=False,
        )
    return Operation(
        "prepare",
        admission.prepare(rests=rests),
        _admission_parameters(call, rests=rests),
        lambda row: onward(admitting.interpret(call, row)),
    )


def _held(call: Admission) -> Operation[Fresh | Replay]:
    """Refuse an intent that has run, with what it waits for."""

    def interpret(row: Any) -> Then[Fresh | Replay]:
        if row.state == State.EXECUTED:
            raise admitting.in_flight(call.request.intent, row, [*row.dead, *row.undecided])
        return Then(prepare(call))

    parameters = {"namespace": call.namespace, "intent_key": call.request.intent_key, "member_limit": SHOWN_MEMBERS}
    return Operation("prepare", observation.status(), parameters, interpret, writes=False)


def _replace(call: Admission, old: Replace) -> Operation[Fresh | Replay]:
    """Admit the next attempt in place of a released one or of one whose lease ran out, if the other gates pass."""

    def interpret(row: Any) -> Fresh | Then[Fresh | Replay]:
        return admitting.interpret_replacement(call, old, row) or Then(prepare(call))

    parameters = {**_admission_parameters(call, rests=True), "attempt": old.attempt, "actor": call.request.agent}
    statement = admission.takeover() if old.takeover else admission.reopen()
    return Operation("prepare", statement, parameters, interpret, many=old.takeover)


def _admission_parameters(call: Admission, *, rests: bool) -> dict[str, Any]:
    request = call.request
    digests = request.fingerprint
    parameters: dict[str, Any] = {
        "namespace": call.namespace,
        "intent": request.intent,
        "intent_key": request.intent_key,
        "domain": request.domain,
        "domain_key": request.domain_key,
        "token": call.token,
        "tool": request.tool,
        "agent": request.agent,
        "args": request.args_text,
        "args_digest": digests.args_digest,
        "identity_digest": digests.identity_digest,
        "identity_fields": None if digests.identity_fields is None else list(digests.identity_fields),
        "on_stale": request.on_stale.value,
        "on_lease_expiry": call.on_lease_expiry.value,
        "lease_seconds": call.lease_seconds,
    }
    if rests:
        parameters.update(_plan_parameters(call))
        parameters["parent"] = request.parent
        parameters["read_set"] = read_set_text(call.read_set)
        parameters["read_keys"] = [key_of(entry.domain) for entry in call.read_set]
        parameters["read_seqs"] = [entry.seq for entry in call.read_set]
        parameters["known_clock"] = canonical_json(dict(request.known_clock.root))
        parameters["observed_keys"] = [key_of(intent) for intent in request.observes]
        parameters["doubted"] = any(not entry.settled for entry in call.read_set)
    else:
        parameters["vector_clock"] = canonical_json(dict(call.vector_clock.root))
    return parameters


def _plan_parameters(call: Admission) -> dict[str, Any]:
    request, target = call.request, call.undoes
    plan = request.compensation
    return {
        "branch": request.branch,
        "branch_key": None if request.branch is None else key_of(request.branch),
        "compensation": None
        if plan is None
        else canonical_json({"args": read_json(plan.args_text), "tool": plan.tool}),
        "undoes_key": None if target is None else key_of(target.intent),
        "undoes_attempt": None if target is None else target.attempt,
    }


def read_set_text(entries: tuple[ReadSetEntry, ...]) -> str:
    """A read set as it stands in the certificate."""
    if not entries:
        return "[]"
    return canonical_json([{"domain": entry.domain, "seq": entry.seq} for entry in entries])


def fence_before(then: Operation[Any], namespace: str, key: bytes, attempt: int, actor: str) -> Operation[Any]:
    """Fence one expired lease, then go on."""
    operation = fence_expired(namespace, [key], [attempt], actor)

    def interpret(_row: Any) -> Then[Any]:
        return Then(then)

    return Operation("fence", operation.statement, operation.parameters, interpret, many=True)


def fence_expired(namespace: str, keys: list[bytes], attempts: list[int], actor: str = FENCE_ACTOR) -> Operation[int]:
    """Fence the effects of the list whose lease ran out; how many there were."""

    def interpret(row: Any) -> int:
        require_serializable(row)
        return int(row.fenced)

    parameters = {"namespace": namespace, "keys": keys, "attempts": attempts, "actor": actor}
    return Operation("sweep", reconciliation.fence_expired(), parameters, interpret, many=True)


def expired(namespace: str, row_limit: int) -> Operation[tuple[list[bytes], list[int]]]:
    """Which effects have a lease that ran out."""
    return Operation(
        "expired",
        reconciliation.expired(),
        {"namespace": namespace, "row_limit": row_limit},
        lambda row: ([bytes(key) for key in row.keys], list(row.attempts)),
        writes=False,
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
    parameters = {"namespace": namespace, "intent_key": key_of(intent), "member_limit": SHOWN_MEMBERS}
    return Operation(
        "status", observation.status(), parameters, lambda row: reporting.status(namespace, intent, row), writes=False
    )
