"""prepare as an operation: a look or a claim, and what follows from what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectfence_pg.protocol import admission as admitting
from effectfence_pg.protocol import gates
from effectfence_pg.protocol.admission import Fence, Replace, Undecided
from effectfence_pg.protocol.asked import Admission
from effectfence_pg.protocol.asked import rests as rests_on
from effectfence_pg.protocol.states import State
from effectfence_pg.sql import admission, observation
from effectfence_pg.sql.fencing import fence_before
from effectfence_pg.sql.operation import Operation, Then
from effectfence_pg.values import key_of
from effectfence_pg.values.canonical import canonical_json, read_json

if TYPE_CHECKING:
    from effectfence_pg.values import (
        Fresh,
        ReadSetEntry,
        Replay,
    )


def replay(call: Admission) -> Operation[Fresh | Replay]:
    """Read the certificate of an intent that is known to have one. Where it is gone after all, everything is asked anew."""
    return Operation(
        "prepare",
        admission.sealed(),
        {"namespace": call.namespace, "intent_key": call.intent_key},
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
    rests = rests_on(call)

    def onward(verdict: admitting.Verdict) -> Fresh | Replay | Then[Fresh | Replay]:
        if isinstance(verdict, Replace):
            return Then(_replace(call, verdict))
        if isinstance(verdict, Undecided):
            return Then(_held(call))
        if isinstance(verdict, Fence):
            return Then(fence_before(prepare(call), call.namespace, call.intent_key, verdict.attempt, request.agent))
        return verdict

    if known:
        return Operation(
            "prepare",
            admission.look(),
            {"namespace": call.namespace, "intent_key": call.intent_key},
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
            raise gates.in_flight(call.request.intent, row, [*row.dead, *row.undecided])
        return Then(prepare(call))

    parameters = {
        "namespace": call.namespace,
        "intent_key": call.intent_key,
        "member_limit": observation.SHOWN_MEMBERS,
    }
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
        "intent_key": call.intent_key,
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
