"""The tools: what each is called, takes, answers and does, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types

from effectfence_pg.mcp import answers, arguments
from effectfence_pg.mcp.lineage import lineage
from effectfence_pg.mcp.schemas import schema_of
from effectfence_pg.values import Replay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    from effectfence_pg.async_fence import AsyncFence


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. The hints are promises: `read_only` changes nothing, `destructive` may take something back."""

    name: str
    title: str
    description: str
    takes: type[BaseModel]
    answers: type[BaseModel]
    call: Callable[[AsyncFence, Any], Awaitable[dict[str, Any]]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    operator: bool = False

    def listed(self) -> types.Tool:
        """As it is shown to clients."""
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=schema_of(self.takes),
            output_schema=schema_of(self.answers),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent or self.read_only,
                open_world_hint=False,
            ),
        )


async def _prepare(fence: AsyncFence, given: arguments.Prepare) -> dict[str, Any]:
    verdict = await fence.prepare(given, wait_seconds=given.wait_seconds)
    if isinstance(verdict, Replay):
        return {"status": "already_done", "cert": verdict.certificate.wire(), "attempt": verdict.attempt}
    return {
        "status": "fresh",
        "prepared": verdict.prepared.model_dump(mode="json"),
        "attempt": verdict.prepared.attempt,
    }


async def _commit(fence: AsyncFence, given: arguments.Commit) -> dict[str, Any]:
    outcome = await fence.commit(
        given.prepared, given.result, closure=given.closure, timeout_seconds=given.timeout_seconds
    )
    return answers.committed(outcome, given.prepared)


async def _abort(fence: AsyncFence, given: arguments.Abort) -> dict[str, Any]:
    return answers.aborted(await fence.abort(given.prepared, given.reason, effect=given.effect))


async def _stats(fence: AsyncFence, given: arguments.Nothing) -> dict[str, Any]:
    del given
    stats = fence.stats()
    return {**stats.wire(), "refused_by_code": stats.refused}


async def _observe(fence: AsyncFence, given: arguments.Observe) -> dict[str, Any]:
    return {"entries": [entry.model_dump(mode="json") for entry in await fence.observe(*given.domains)]}


async def _renew(fence: AsyncFence, given: arguments.Ticket) -> dict[str, Any]:
    return {"status": "renewed", "prepared": (await fence.renew(given.prepared)).model_dump(mode="json")}


async def _status(fence: AsyncFence, given: arguments.Intent) -> dict[str, Any]:
    return answers.status(await fence.status(given.intent))


async def _promote(fence: AsyncFence, given: arguments.Promote) -> dict[str, Any]:
    done = await fence.promote(intent=given.intent, branch=given.branch, actor=given.actor)
    return {"status": "committed", **done.model_dump(mode="json")}


async def _lineage(fence: AsyncFence, given: arguments.Lineage) -> dict[str, Any]:
    return await lineage(fence, given.name, dependents=given.dependents, depth=given.depth)


async def _reconcile(fence: AsyncFence, given: arguments.Reconcile) -> dict[str, Any]:
    return answers.status(await fence.reconcile(given.intent, **given.given()))


TOOLS: Final = (
    Tool(
        name="fence_prepare",
        title="Ask to run a side effect",
        description="Call this before a side effect. `fresh`: you alone may run it; then call fence_commit with what it "
        "returned. `already_done`: it ran before; use cert.result and do not run it. A refusal says what to do instead.",
        takes=arguments.Prepare,
        answers=answers.Prepared,
        call=_prepare,
    ),
    Tool(
        name="fence_commit",
        title="Record what the side effect returned",
        description="Call this with the ticket of fence_prepare once the side effect has run. Its result is on record "
        "whatever the answer is. Calling it again with the same result answers with the same certificate.",
        takes=arguments.Commit,
        answers=answers.Committed,
        call=_commit,
        idempotent=True,
    ),
    Tool(
        name="fence_abort",
        title="Give up an attempt",
        description="Call this when the side effect did not finish. Nobody runs the action again until an operator has "
        "found out what happened; with effect 'none' you assert that nothing happened, and it may be run again.",
        takes=arguments.Abort,
        answers=answers.Aborted,
        call=_abort,
        destructive=True,
    ),
    Tool(
        name="fence_stats",
        title="What this server saw",
        description="Attempts that were admitted, replayed and refused by this server since it was started.",
        takes=arguments.Nothing,
        answers=answers.Stats,
        call=_stats,
        read_only=True,
    ),
    Tool(
        name="fence_observe",
        title="Read the numbers of domains",
        description="Call this before you read what a decision rests on, and hand the entries to fence_prepare as "
        "read_set: it is refused when any of it has changed by then.",
        takes=arguments.Observe,
        answers=answers.Observed,
        call=_observe,
        read_only=True,
    ),
    Tool(
        name="fence_renew",
        title="Extend a lease",
        description="Call this while a side effect runs longer than its lease. A refusal means: stop, it is not yours.",
        takes=arguments.Ticket,
        answers=answers.Renewed,
        call=_renew,
    ),
    Tool(
        name="fence_status",
        title="Where an action stands",
        description="The current attempt of an intent: its state, its lease, its certificate, and what it waits for.",
        takes=arguments.Intent,
        answers=answers.Status,
        call=_status,
        read_only=True,
    ),
    Tool(
        name="fence_promote",
        title="Commit a speculative plan",
        description="Commits all effects that a held action rests on, or all of a branch, in one step, or none. When one "
        "of them was rolled back, the whole set is rolled back.",
        takes=arguments.Promote,
        answers=answers.Promoted,
        call=_promote,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="fence_lineage",
        title="What an action rests on",
        description="The certificates that an action's decision rested on, and theirs in turn; or what rests on it.",
        takes=arguments.Lineage,
        answers=answers.Graph,
        call=_lineage,
        read_only=True,
    ),
    Tool(
        name="fence_reconcile",
        title="Resolve an unknown outcome",
        description="For operators: record what really happened to a fenced attempt, with the evidence.",
        takes=arguments.Reconcile,
        answers=answers.Status,
        call=_reconcile,
        destructive=True,
        operator=True,
    ),
)
"""Every tool. Those of operators are served only when that was asked for."""
