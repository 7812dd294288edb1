"""What callers hand over, checked and turned into operations: shared by every fence and repository, sync and async."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from effectfence_pg.checks import check_number, choice
from effectfence_pg.errors import InvalidRequest, ResultNotRecordable
from effectfence_pg.protocol.asked import Admission, Target
from effectfence_pg.protocol.reconciliation import Judgement
from effectfence_pg.protocol.speculation import require_plain
from effectfence_pg.protocol.verdicts import require_own
from effectfence_pg.sql import speculation, verbs
from effectfence_pg.values import (
    MAX_NAMESPACE_BYTES,
    MAX_SEQ,
    AbortEffect,
    Basis,
    ClosureMode,
    FenceConfig,
    Outcome,
    PreparedEffect,
    canonical_json,
    check_name,
    parse_prepared,
    parse_request,
    read_json,
    to_json_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from effectfence_pg.protocol.speculation import Undoable
    from effectfence_pg.sql.operation import Operation
    from effectfence_pg.values import (
        Aborted,
        Committed,
        EffectCert,
        EffectRequest,
        EffectStatus,
        Held,
        Pending,
        ReadSetEntry,
        RolledBack,
    )

MAX_REASON_BYTES = 16_384
NULL: Final = object()
"""In place of a result that is JSON's null, where None says that no result is given."""
MAX_ATTEMPT = 2**31 - 1


class Calls:
    """The checked form of every verb's arguments, for one namespace and configuration.

    Raises:
        InvalidRequest: From every method, before any database work; `field` names what is wrong.
    """

    def __init__(self, namespace: str, config: FenceConfig | None) -> None:
        self.namespace = check_name(namespace, field="namespace", max_bytes=MAX_NAMESPACE_BYTES)
        self.config = config or FenceConfig()

    def admission(self, given: EffectRequest | Mapping[str, Any]) -> Admission:
        """One call of prepare, with a token of its own."""
        request = parse_request(given)
        require_plain(request.intent)
        request.check(self.config)
        return Admission(request, self.namespace, self.config)

    def ticket(self, given: PreparedEffect | Mapping[str, Any]) -> PreparedEffect:
        """A ticket of this namespace."""
        prepared = parse_prepared(given)
        require_own(prepared, self.namespace)
        return prepared

    def commit(
        self, given: PreparedEffect | Mapping[str, Any], result: Any, closure: str
    ) -> Operation[EffectCert | Held]:
        """A commit with its result as canonical text."""
        prepared = self.ticket(given)
        mode = choice(ClosureMode, closure, "closure")
        text = self._result(prepared.intent, result)
        limit = self.config.max_closure_members
        decide = verbs.commit(prepared, text, asked=mode != ClosureMode.HOLD, member_limit=limit)
        if mode != ClosureMode.PROMOTE:
            return decide
        held = verbs.commit(prepared, text, asked=False, member_limit=limit)
        return speculation.commit_promoted(held, decide, prepared, member_limit=limit)

    def _result(self, intent: str, result: Any) -> str:
        try:
            text = canonical_json(to_json_value(result, field="result"))
        except InvalidRequest as error:
            raise ResultNotRecordable(intent=intent, reason=str(error)) from error
        limit = self.config.max_result_bytes
        # The text never has fewer bytes than characters, and at most four for each.
        if len(text) * 4 > limit and len(text.encode()) > limit:
            raise ResultNotRecordable(intent=intent, reason=f"it is longer than {limit} bytes")
        return text

    def abort(self, given: PreparedEffect | Mapping[str, Any], reason: str, effect: str) -> Operation[RolledBack]:
        """An abort with its reason."""
        known = choice(AbortEffect, effect, "effect")
        checked = check_name(reason, field="reason", max_bytes=MAX_REASON_BYTES)
        return verbs.abort(self.ticket(given), checked, no_effect=known == AbortEffect.NONE)

    def observe_late(
        self,
        given: PreparedEffect | Mapping[str, Any],
        entries: tuple[ReadSetEntry | Mapping[str, Any], ...],
        intents: tuple[str, ...],
    ) -> Operation[PreparedEffect]:
        """What an effect in flight observed since, as entries and intents."""
        prepared = self.ticket(given)
        # The request that would have observed them from the start is checked in the same way.
        request = parse_request(
            {
                "intent": prepared.intent,
                "domain": prepared.domain,
                "tool": prepared.tool,
                "agent": prepared.agent,
                "read_set": list(entries),
                "observes": list(intents),
            }
        )
        request.check(self.config)
        return speculation.observe_late(prepared, Admission(request, self.namespace, self.config))

    def promotion(
        self, intent: str | None, branch: str | None, actor: str
    ) -> tuple[str, Operation[Committed | Aborted | Pending]]:
        """What is promoted, and how."""
        check_name(actor, field="actor")
        limit = self.config.max_closure_members
        if (intent is None) == (branch is None):
            raise InvalidRequest(field="intent", reason="or a branch is what is promoted: give one of the two")
        if branch is not None:
            check_name(branch, field="branch")
            return branch, speculation.promote_branch(self.namespace, branch, actor=actor, member_limit=limit)
        name = check_name(intent, field="intent")
        return name, speculation.promote_intent(self.namespace, name, actor=actor, member_limit=limit)

    def abort_branch(self, branch: str, reason: str, actor: str) -> Operation[Aborted]:
        """A decision against a branch."""
        check_name(branch, field="branch")
        check_name(actor, field="actor")
        checked = check_name(reason, field="reason", max_bytes=MAX_REASON_BYTES)
        return speculation.abort_branch(self.namespace, branch, reason=checked, actor=actor)

    def abort_intent(self, intent: str, attempt: int, reason: str, actor: str) -> Operation[RolledBack]:
        """A decision against an attempt."""
        check_name(intent, field="intent")
        check_name(actor, field="actor")
        check_number(attempt, "attempt", 1, MAX_ATTEMPT)
        checked = check_name(reason, field="reason", max_bytes=MAX_REASON_BYTES)
        return speculation.abort_intent(self.namespace, intent, attempt, reason=checked, actor=actor)

    def target(self, intent: str, attempt: int) -> Operation[Undoable]:
        """A read of what a compensation would undo."""
        check_name(intent, field="intent")
        check_number(attempt, "attempt", 1, MAX_ATTEMPT)
        return speculation.target(self.namespace, intent, attempt)

    def compensation(self, target: Undoable, agent: str, tool: str | None, args: Any) -> Admission:
        """The admission of a compensation, as an effect of its own."""
        plan = target.compensation
        if tool is None and plan is None:
            raise InvalidRequest(field="tool", reason="is required: no compensation was registered")
        request = parse_request(
            {
                "intent": target.compensating_intent,
                "domain": target.domain,
                "tool": tool or (plan.tool if plan else ""),
                "agent": agent,
                "args": args if args is not None else (read_json(plan.args_text) if plan else {}),
            }
        )
        request.check(self.config)
        return Admission(request, self.namespace, self.config, undoes=Target(target.intent, target.attempt))

    def observe(self, domains: tuple[str, ...]) -> Operation[tuple[ReadSetEntry, ...]]:
        """A read of the numbers of domains."""
        for domain in domains:
            check_name(domain, field="domain")
        return verbs.observe(self.namespace, domains)

    def reserve(self, domain: str, expected_seq: int) -> Operation[int]:
        """The bare compare-and-set."""
        check_name(domain, field="domain")
        check_number(expected_seq, "expected_seq", 0, MAX_SEQ - 1)
        return verbs.reserve(self.namespace, domain, expected_seq)

    def status(self, intent: str) -> Operation[EffectStatus]:
        """A read of where an intent stands."""
        return verbs.status(self.namespace, check_name(intent, field="intent"))

    def reconcile(
        self,
        intent: str,
        *,
        attempt: int,
        outcome: str,
        result: Any,
        evidence: Any,
        operator: str,
        basis: str | None,
        over: Any,
    ) -> Operation[None]:
        """An operator's judgement of one attempt."""
        check_name(intent, field="intent")
        check_name(operator, field="operator")
        check_number(attempt, "attempt", 1, MAX_ATTEMPT)
        judged = choice(Outcome, outcome, "outcome")
        known = _check_basis(judged, basis)
        if result is not None and judged != Outcome.HAPPENED:
            raise InvalidRequest(field="result", reason=f"goes with happened, not with {judged}")
        if not isinstance(over, bool):
            raise InvalidRequest(field="over", reason="is neither True nor False")
        if over and judged != Outcome.HAPPENED:
            raise InvalidRequest(field="over", reason=f"goes with happened, not with {judged}")
        shown = to_json_value(evidence, field="evidence", nul=False)
        record = canonical_json({"basis": known, "evidence": shown, "outcome": judged.value})
        if len(record.encode()) > self.config.max_args_bytes:
            raise InvalidRequest(field="evidence", reason=f"is longer than {self.config.max_args_bytes} bytes")
        text = None if result is None else self._result(intent, None if result is NULL else result)
        judgement = Judgement(intent=intent, attempt=attempt, outcome=judged, result=text, operation=uuid4())
        return verbs.reconcile(
            judgement,
            namespace=self.namespace,
            operator=operator,
            evidence=record,
            over=over,
            member_limit=self.config.max_closure_members,
        )


def _check_basis(outcome: Outcome, basis: str | None) -> str | None:
    """Saying that nothing happened is sound only if the old holder cannot act any more: the call has to say why."""
    if outcome != Outcome.DID_NOT_HAPPEN:
        if basis is not None:
            raise InvalidRequest(field="basis", reason=f"goes with did_not_happen, not with {outcome}")
        return None
    if basis is None:
        raise InvalidRequest(field="basis", reason="is required: holder_dead or fenced_downstream")
    return choice(Basis, basis, "basis").value
