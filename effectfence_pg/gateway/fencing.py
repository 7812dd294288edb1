"""What happens to one call of a tool: it is passed on, passed on as a read, or fenced."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from effectfence_pg.errors import ClosurePending, FenceError, IntentFailed
from effectfence_pg.gateway.admissible import action_of
from effectfence_pg.gateway.calls import ToolCall, domain_of, request_of
from effectfence_pg.gateway.errors import Lost, NoEffect, UpstreamUnavailable
from effectfence_pg.gateway.policy import Action, OnToolError
from effectfence_pg.gateway.sessions import Sessions
from effectfence_pg.running.performing import Background
from effectfence_pg.serving import refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from effectfence_pg.async_fence import AsyncFence
    from effectfence_pg.gateway.catalogue import Catalogue
    from effectfence_pg.gateway.policy import Policy, Rule
    from effectfence_pg.gateway.tenants import Tenants
    from effectfence_pg.running.current import CurrentEffect
    from effectfence_pg.running.runs import Ran
    from effectfence_pg.values import EffectRequest

log = logging.getLogger("effectfence_pg.gateway")

REPLAY: Final = "effectfence/replay"
PENDING: Final = "effectfence/pending"
RESULT: Final = "effectfence/result"
DOWNSTREAM_KEY: Final = "effectfence/idempotencyKey"
DOWNSTREAM_SEQ: Final = "effectfence/seq"
DOWNSTREAM_ATTEMPT: Final = "effectfence/attempt"
SHOWN: Final = 200
UNKNOWN: Final = (CONNECTION_CLOSED, REQUEST_TIMEOUT)
NOT_CALLED: Final = (METHOD_NOT_FOUND, INVALID_PARAMS)
"""Errors that a policy may take as saying that the tool was not called. The others the transport makes up, too: of an HTTP
status, of an answer that it cannot read."""


@dataclass(frozen=True, slots=True)
class Line:
    """The way of one call to the upstream, and how its tools are listed again."""

    name: str
    send: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
    list_again: Callable[[], Awaitable[bool]]


class Fencing:
    """The calls of one gateway.

    Args:
        policy: What is done with which tool.
        catalogue: What the upstream says of them.
        tenants: The fences.
    """

    def __init__(self, policy: Policy, catalogue: Catalogue, tenants: Tenants) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._tenants = tenants
        self._sessions = Sessions()
        self.background = Background()

    async def call(self, call: ToolCall, line: Line) -> dict[str, Any]:
        """Answer a call. A refusal is a result, so that a model can act on it.

        Raises:
            MCPError: The upstream answered with an error of the protocol.
            FenceError: No upstream could take it.
        """
        rule = self._policy.rule(call.tool)
        action = await action_of(call, rule, self._policy, self._catalogue, line.list_again)
        if action == Action.PASS:
            return await line.send(call.params)
        # The client may go away at any time; what it called for is seen through all the same, and replayed when it asks again.
        call = replace(call, defaults=self._catalogue.shape(call.tool).defaults())
        work = self._observed if action == Action.OBSERVE else self._fenced
        return await asyncio.shield(self.background.start(self._answered(work, call, rule, line)))

    async def _answered(self, work: Any, call: ToolCall, rule: Rule, line: Line) -> dict[str, Any]:
        try:
            namespace = call.named("namespace", self._policy.namespace)
            fence = await self._tenants.enter(namespace)
            try:
                return await work(fence, call, rule, line)
            finally:
                self._tenants.leave(namespace)
        except FenceError as error:
            return refused(error)
        except MCPError:
            raise
        except Exception:
            # What nobody thought of is a refusal too, and not the end of the connection.
            log.exception("%s failed", call.tool[:SHOWN])
            return refused(FenceError())

    async def _observed(self, fence: AsyncFence, call: ToolCall, rule: Rule, line: Line) -> dict[str, Any]:
        # The numbers first, then the world.
        entries = await fence.observe(domain_of(call, rule, self._policy, line.name))
        answer = await line.send(call.params)
        if not answer.get("isError") and not _asks(answer):
            self._sessions.observed(call.session, fence.namespace, entries)
        return answer

    async def _fenced(self, fence: AsyncFence, call: ToolCall, rule: Rule, line: Line) -> dict[str, Any]:
        read_set = self._sessions.read_set(call.session, fence.namespace)
        request = request_of(call, rule, self._policy, line.name, read_set)
        attempt = Attempt(call, line, release=self._policy.setting(rule, "on_tool_error") == OnToolError.RELEASE)
        try:
            ran = await fence.run(
                request,
                attempt.run,
                wait_seconds=self._policy.setting(rule, "wait_seconds"),
                no_effect=NoEffect,
            )
        except NoEffect as answered:
            if answered.error is not None:
                raise answered.error from None
            return answered.answer or {}
        except Lost:
            return refused(_unknown(request, attempt))
        except ClosurePending as pending:
            # It ran and is on record; only the certificate waits for what it rests on.
            return _with_meta(attempt.answer or {}, PENDING, pending.as_dict())
        except FenceError as error:
            kept = refused(error)
            return kept if attempt.answer is None else _with_meta(kept, RESULT, attempt.answer)
        return self._done(call, fence, ran, attempt)

    def _done(self, call: ToolCall, fence: AsyncFence, ran: Ran[Any], attempt: Attempt) -> dict[str, Any]:
        if ran.replayed and ran.certificate is not None:
            certificate = ran.certificate
            mark = {
                "replayed": True,
                "intent": certificate.intent,
                "attempt": certificate.attempt,
                "certificate": certificate.hash,
            }
            return _with_meta(ran.result, REPLAY, mark)
        if attempt.effect is not None:
            self._sessions.acted(call.session, fence.namespace, attempt.effect.domain, attempt.effect.seq)
        return ran.result


class Attempt:
    """One admitted attempt: exactly one request to the upstream."""

    def __init__(self, call: ToolCall, line: Line, *, release: bool) -> None:
        self._call = call
        self._line = line
        self._release = release
        self.effect: CurrentEffect | None = None
        self.answer: dict[str, Any] | None = None

    async def run(self, effect: CurrentEffect) -> dict[str, Any]:
        """Send the call, and say what its answer means."""
        self.effect = effect
        meta = {
            **self._call.meta,
            DOWNSTREAM_KEY: effect.idempotency_key,
            DOWNSTREAM_SEQ: effect.seq,
            DOWNSTREAM_ATTEMPT: effect.attempt,
        }
        try:
            answer = await self._line.send({**self._call.params, "_meta": meta})
        except UpstreamUnavailable as error:
            # There was nobody to send it to.
            raise NoEffect(error=error) from None
        except MCPError as error:
            if error.code in UNKNOWN:
                raise Lost from error
            if self._release and error.code in NOT_CALLED:
                raise NoEffect(error=error) from None
            raise
        # An answer that asks for input is no outcome: the client calls again, and that is the same action.
        if _asks(answer) or (self._release and answer.get("isError")):
            raise NoEffect(answer)
        self.answer = answer
        return answer


def _asks(answer: Mapping[str, Any]) -> bool:
    return answer.get("resultType") == "input_required"


def _unknown(request: EffectRequest, attempt: Attempt) -> IntentFailed:
    """What the next caller will be told as well."""
    return IntentFailed(
        intent=request.intent,
        attempt=attempt.effect.attempt if attempt.effect else 1,
        state="failed",
        reason="the upstream ended after the call was sent, outcome unknown",
        way_out="reconcile",
    )


def _with_meta(answer: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The answer as it was, with one mark more beside it. What is no object has no place for a mark, and makes room for it."""
    meta: Any = answer.get("_meta")
    beside = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    return {**answer, "_meta": {**beside, key: value}}
