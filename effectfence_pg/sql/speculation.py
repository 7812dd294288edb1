"""Decisions about speculative effects, as operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from effectfence_pg.protocol import speculation as deciding
from effectfence_pg.protocol.verdicts import require_serializable
from effectfence_pg.sql import branches, late, settling
from effectfence_pg.sql.fencing import FENCE_ACTOR
from effectfence_pg.sql.operation import Operation, Then, following
from effectfence_pg.sql.preparing import read_set_text
from effectfence_pg.sql.verbs import ticket_parameters
from effectfence_pg.values import Held, key_of

if TYPE_CHECKING:
    from effectfence_pg.protocol.asked import Admission
    from effectfence_pg.protocol.speculation import Undoable
    from effectfence_pg.values import Aborted, Committed, EffectCert, Pending, PreparedEffect, RolledBack


def target(namespace: str, intent: str, attempt: int) -> Operation[Undoable]:
    """What a compensation would undo."""
    parameters = {"namespace": namespace, "intent_key": key_of(intent), "attempt": attempt}
    return Operation(
        "target",
        branches.target(),
        parameters,
        lambda row: deciding.interpret_target(intent, attempt, row),
        writes=False,
    )


def commit_promoted(
    held: Operation[EffectCert | Held],
    decide: Operation[EffectCert | Held],
    prepared: PreparedEffect,
    *,
    member_limit: int,
) -> Operation[EffectCert | Held]:
    """Record the result, promote the closure, and answer as a commit does."""
    promote = promote_intent(prepared.namespace, prepared.intent, actor=prepared.agent, member_limit=member_limit)

    def promoted(row: Any) -> Then[EffectCert | Held]:
        promote.interpret(row)
        return Then(decide)

    promotion: Operation[Any] = replace(promote, interpret=promoted)

    def watched(operation: Operation[EffectCert | Held]) -> Operation[EffectCert | Held]:
        def interpret(row: Any) -> EffectCert | Held | Then[EffectCert | Held]:
            verdict = operation.interpret(row)
            then = following(verdict)
            if then is not None:
                return Then(watched(then))
            return Then(promotion) if isinstance(verdict, Held) else verdict

        return replace(operation, interpret=interpret)

    return watched(held)


def promote_branch(
    namespace: str, branch: str, *, actor: str, member_limit: int
) -> Operation[Committed | Aborted | Pending]:
    """Commit every effect of a branch and of its closure, or abort them all, or say what they wait for."""
    return Operation(
        "promote",
        branches.promote_branch(),
        _decision(namespace, actor, member_limit) | {"branch_key": key_of(branch)},
        lambda row: deciding.interpret_branch(branch, row, member_limit=member_limit),
        many=True,
    )


def promote_intent(
    namespace: str, intent: str, *, actor: str, member_limit: int
) -> Operation[Committed | Aborted | Pending]:
    """The same for an intent without a branch and for its closure."""
    return Operation(
        "promote",
        branches.promote_intent(),
        _decision(namespace, actor, member_limit) | {"intent_key": key_of(intent), "branch_key": None},
        lambda row: deciding.interpret_intent(intent, row, member_limit=member_limit),
        many=True,
    )


def _decision(namespace: str, actor: str, member_limit: int) -> dict[str, Any]:
    return {"namespace": namespace, "actor": actor, "member_limit": member_limit, "operation": uuid4()}


def abort_branch(namespace: str, branch: str, *, reason: str, actor: str) -> Operation[Aborted]:
    """Roll back a branch."""
    parameters = {
        "namespace": namespace,
        "branch_key": key_of(branch),
        "reason": reason,
        "actor": actor,
        "operation": uuid4(),
    }
    return Operation(
        "abort_branch",
        branches.abort_branch(),
        parameters,
        lambda row: deciding.interpret_abort_branch(branch, row),
        many=True,
    )


def abort_intent(namespace: str, intent: str, attempt: int, *, reason: str, actor: str) -> Operation[RolledBack]:
    """Roll back one attempt without its ticket."""
    parameters = {
        "namespace": namespace,
        "intent_key": key_of(intent),
        "attempt": attempt,
        "reason": reason,
        "actor": actor,
        "operation": uuid4(),
    }
    return Operation(
        "abort_intent",
        branches.abort_intent(),
        parameters,
        lambda row: deciding.interpret_abort_intent(namespace, intent, attempt, row),
        many=True,
    )


def undecided(namespace: str, row_limit: int) -> Operation[tuple[list[bytes], list[int]]]:
    """Which executed effects settling may be able to decide."""
    return Operation(
        "undecided",
        settling.undecided(),
        {"namespace": namespace, "row_limit": row_limit},
        lambda row: ([bytes(key) for key in row.keys], list(row.attempts)),
        writes=False,
    )


def settle(namespace: str, keys: list[bytes], attempts: list[int]) -> Operation[tuple[int, int]]:
    """Decide them; how many were committed and aborted."""

    def interpret(row: Any) -> tuple[int, int]:
        require_serializable(row)
        return int(row.committed), int(row.aborted)

    parameters = {"namespace": namespace, "keys": keys, "attempts": attempts, "actor": FENCE_ACTOR}
    return Operation("settle", settling.settle(), parameters, interpret, many=True)


def observe_late(prepared: PreparedEffect, call: Admission) -> Operation[PreparedEffect]:
    """Add what an effect in flight observed; `call` holds only the new entries and intents."""
    parameters = {
        **ticket_parameters(prepared),
        "operation": uuid4(),
        "parent": None,
        "branch_key": None,
        "undoes_key": None,
        "undoes_attempt": None,
        "doubted": any(not entry.settled for entry in call.read_set),
        "read_set": read_set_text(call.read_set),
        "read_keys": [key_of(entry.domain) for entry in call.read_set],
        "read_seqs": [entry.seq for entry in call.read_set],
        "observed_keys": [key_of(intent) for intent in call.request.observes],
    }
    return Operation(
        "observe_late",
        late.observe_late(),
        parameters,
        lambda row: deciding.interpret_late(prepared, call, row),
    )
