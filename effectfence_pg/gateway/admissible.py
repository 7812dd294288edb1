"""Calls that the upstream could not take are refused before they are admitted: sent, they would leave an unknown outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from effectfence_pg.gateway.errors import InvalidArguments, UnknownTool
from effectfence_pg.gateway.policy import Action

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from effectfence_pg.gateway.calls import ToolCall
    from effectfence_pg.gateway.catalogue import Catalogue
    from effectfence_pg.gateway.policy import Policy, Rule

LIST_SECONDS: Final = 30.0


async def action_of(
    call: ToolCall, rule: Rule, policy: Policy, catalogue: Catalogue, list_again: Callable[[], Awaitable[bool]]
) -> Action:
    """What is done with a call.

    Args:
        call: The call.
        rule: The policy's rule about it.
        policy: The policy.
        catalogue: What the upstream lists.
        list_again: Lists its tools anew, for one may have been added since; whether that could be done.

    Raises:
        UnknownTool: It is an effect, and there is no such tool.
        InvalidArguments: It is an effect, and the tool's schema does not allow the arguments.
        InvalidRequest: The arguments are no object.
    """
    action = rule.action or catalogue.action(call.tool)
    if action != Action.FENCE or not policy.setting(rule, "check_calls"):
        return action
    if catalogue.lacks(call.tool):
        if await _in_time(list_again) and catalogue.lacks(call.tool):
            raise UnknownTool(tool=call.tool)
        # Listed by now, it may be a read.
        action = rule.action or catalogue.action(call.tool)
        if action != Action.FENCE:
            return action
    fault = catalogue.shape(call.tool).fault(call.arguments)
    if fault is not None:
        raise InvalidArguments(tool=call.tool, field=fault[0], reason=fault[1])
    return action


async def _in_time(list_again: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(LIST_SECONDS):
            return await list_again()
    except TimeoutError:
        return False
