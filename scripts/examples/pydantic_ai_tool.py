"""A fenced tool in Pydantic AI: a host that runs the agent again after a model error charges the card once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from examples.script import CALL, DONE, FAIL, ORDER, ModelError, Script
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from effectfence_pg import Fence


def run(charge: Callable[..., Any], script: Script) -> str:
    """Let an agent with this tool play the script."""

    def model(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        ids = script.next_calls()
        calls = [ToolCallPart("charge", ORDER, tool_call_id=name) for name in ids]
        return ModelResponse(parts=calls or [TextPart("The card is charged.")])

    agent = Agent(FunctionModel(model), tools=[charge])
    return agent.run_sync("Charge order 7.").output


def main() -> None:
    """One model error, and one charge."""
    with Fence(os.environ["EFFECTFENCE_DATABASE_URL"], namespace="pydantic-ai") as fence:

        @fence.fenced(intent="charge:{order_id}", wait_seconds=30)
        def charge(order_id: str) -> str:
            """Charge the card of an order."""
            print(f"charging {order_id}")
            return f"receipt of {order_id}"

        with contextlib.suppress(ModelError):
            run(charge, Script(CALL, FAIL))
        print(run(charge, Script(CALL, DONE)))


if __name__ == "__main__":
    main()
