"""run: prepare, keep the lease, the tool, commit or abort; written once, for callers that block and for those that await.

`running` does no I/O. It asks for steps on the database and for calls of the caller's functions, and is told what came of them.
No transaction is open and no connection is taken while a tool runs, for nothing of the database is asked for then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from effectfence_pg.calls import NULL
from effectfence_pg.checks import choice
from effectfence_pg.errors import (
    AttemptMismatch,
    IntentFailed,
    InvalidRequest,
    NotReconcilable,
    ResultNotRecordable,
    ResultNotReplayable,
)
from effectfence_pg.running.current import CurrentEffect
from effectfence_pg.running.proof import judge
from effectfence_pg.running.runs import (
    Call,
    Claim,
    Desk,
    DidNotHappen,
    Happened,
    Look,
    Options,
    Ran,
    Running,
    Settle,
    Verify,
)
from effectfence_pg.values import ClosureMode, EffectCert, Held, LeaseExpiry, Outcome, PreparedEffect, Replay
from effectfence_pg.waiting import admissions

if TYPE_CHECKING:
    from collections.abc import Callable

    from effectfence_pg.protocol.asked import Admission
    from effectfence_pg.running.leases import Lease
    from effectfence_pg.steps import Steps
    from effectfence_pg.values import Fresh


NOT_REPLAYABLE: Final = "$effectfence_not_replayable"
"""The one key of what is recorded in place of a result that cannot be: why."""

MAX_VERIFICATIONS: Final = 3


def running(desk: Desk, request: Any, tool: Callable[[CurrentEffect], Any], options: Options) -> Running[Ran[Any]]:
    """One call of a tool through the fence.

    Raises:
        FenceError: The refusal; the tool was not called, unless the error says so.
        BaseException: What the tool raised; the attempt is fenced, or released when that was declared as no effect.
    """
    desk.require_open()
    admission = desk.calls.admission(request)
    if options.verify is not None:
        _promise(admission, options.verify)
    # What the commit is told is checked now: when the tool has run it is too late to refuse.
    choice(ClosureMode, options.closure, "closure")
    admissions.patience(options.timeout_seconds, "timeout_seconds")
    verdict = yield from _claimed(desk, admission, options)
    if isinstance(verdict, Replay):
        return Ran(recorded(verdict.certificate), True, verdict.certificate)
    prepared = verdict.prepared
    lease = desk.keep(prepared)
    try:
        result = yield from _performed(desk, prepared, lease, tool, options)
        outcome = yield from _recorded(desk, prepared, result, options)
    finally:
        desk.let_go(lease)
    if isinstance(outcome, Held):
        return Ran(result, False, held=outcome)
    return Ran(result, False, outcome)


def recorded(certificate: EffectCert) -> Any:
    """The result on record.

    Raises:
        ResultNotReplayable: The tool's result could not be recorded when it ran.
    """
    result: Any = certificate.result
    if isinstance(result, dict) and NOT_REPLAYABLE in result:
        reason = str(cast("dict[str, Any]", result)[NOT_REPLAYABLE])
        raise ResultNotReplayable(intent=certificate.intent, attempt=certificate.attempt or 0, reason=reason)
    return cast("Any", result)


def _promise(admission: Admission, verify: Any) -> None:
    """Whoever brings a hook wants it to be asked when a lease runs out: that has to stand in what is admitted.

    Raises:
        InvalidRequest: It cannot be called, or the request says that something else is to be done then.
    """
    if not callable(verify):
        raise InvalidRequest(field="verify", reason=f"is of type {type(verify).__name__}, which cannot be called")
    if admission.request.on_lease_expiry not in {None, LeaseExpiry.VERIFY}:
        asked = admission.request.on_lease_expiry
        raise InvalidRequest(
            field="verify", reason=f"is never asked with on_lease_expiry={str(asked)!r}; leave one out"
        )
    admission.verifies = True


def _claimed(desk: Desk, call: Admission, options: Options) -> Running[Fresh | Replay]:
    patience = admissions.patience(options.wait_seconds, "wait_seconds")

    def claim() -> Steps[Fresh | Replay]:
        return admissions.admit(desk.memory, call, patience, desk.calls.config)

    def release(prepared: PreparedEffect) -> Steps[Any]:
        return desk.steps(desk.calls.abort(prepared, "cancelled before the tool was called", "none"))

    for _ in range(MAX_VERIFICATIONS):
        try:
            return (yield Claim(claim, release))
        except IntentFailed as error:
            if options.verify is None or not error.verifiable:
                raise
            if not (yield from _verified(desk, call, error, options.verify)):
                raise
    return (yield Claim(claim, release))


def _verified(desk: Desk, call: Admission, error: IntentFailed, verify: Verify) -> Running[bool]:
    """Ask the downstream system about an attempt that was not heard of; whether that changed anything."""
    status = yield Look(lambda: desk.steps(desk.calls.status(error.intent)))
    if status.attempt != error.attempt or status.state != error.state:
        return True
    answer = yield Call(verify, _effect_of(status, call))
    if not isinstance(answer, Happened | DidNotHappen):
        return False
    happened = isinstance(answer, Happened)
    judgement = desk.calls.reconcile(
        error.intent,
        attempt=error.attempt,
        outcome=Outcome.HAPPENED if happened else Outcome.DID_NOT_HAPPEN,
        result=(NULL if answer.result is None else answer.result) if isinstance(answer, Happened) else None,
        evidence={"verified": answer.evidence},
        operator=f"verify by {call.request.agent}",
        basis=None if happened else "fenced_downstream",
        over=False,
    )
    try:
        yield Settle(lambda: desk.steps(judgement))
    except (AttemptMismatch, NotReconcilable):
        # Somebody else was faster: what they found out counts.
        return True
    return True


def _effect_of(status: Any, call: Admission) -> CurrentEffect:
    return CurrentEffect(
        namespace=status.namespace,
        intent=status.intent,
        attempt=status.attempt,
        seq=status.seq,
        domain=status.domain,
        tool=status.tool,
        args=call.request.args,
        agent=status.agent,
    )


def effect_of(prepared: PreparedEffect, lost: Callable[[], Any] = lambda: None) -> CurrentEffect:
    """What the tool of a ticket can know."""
    return CurrentEffect(
        prepared.namespace,
        prepared.intent,
        prepared.attempt,
        prepared.seq,
        prepared.domain,
        prepared.tool,
        prepared.args,
        prepared.agent,
        lost,
    )


def _performed(
    desk: Desk, prepared: PreparedEffect, lease: Lease, tool: Callable[[CurrentEffect], Any], options: Options
) -> Running[Any]:
    try:
        return (yield Call(tool, effect_of(prepared, lambda: lease.lost)))
    except GeneratorExit:
        # Nobody is there any more to take steps: the lease runs out, and the outcome is unknown.
        raise
    except BaseException as error:
        proof = judge(error, options.no_effect)
        abort = desk.calls.abort(prepared, proof.reason, proof.effect)
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            yield Settle(lambda: desk.steps(abort), waits=not cancelled)
        except Exception as failure:  # noqa: BLE001 (the tool's own error is what its caller has to see)
            error.add_note(f"effectfence could not record it: {failure}")
        raise


def _recorded(desk: Desk, prepared: PreparedEffect, result: Any, options: Options) -> Running[EffectCert | Held]:
    """The tool has run: whatever it returned, the intent is completed."""
    try:
        make = _encoded(desk, prepared, result, options)
    except Exception:
        raise
    except BaseException:
        # What a signal handler raised while the result was being written down.
        yield Settle(_encoded(desk, prepared, result, options))
        raise
    return (yield Settle(make))


def _encoded(desk: Desk, prepared: PreparedEffect, result: Any, options: Options) -> Callable[[], Steps[Any]]:
    try:
        value = result if options.encode is None else options.encode(result)
        return _commit(desk, prepared, value, options)
    except ResultNotRecordable as error:
        return _commit(desk, prepared, {NOT_REPLAYABLE: error.reason, "type": _type_name(result)}, options)


def _type_name(result: Any) -> str:
    return f"{type(result).__module__}.{type(result).__qualname__}"[:256]


def _commit(desk: Desk, prepared: PreparedEffect, value: Any, options: Options) -> Callable[[], Steps[Any]]:
    operation = desk.calls.commit(prepared, value, options.closure)
    seconds = admissions.patience(options.timeout_seconds, "timeout_seconds")
    config, closure = desk.calls.config, options.closure
    return lambda: admissions.committing(desk.memory, operation, closure, seconds, config, insists=True)
