"""A fenced tool in the OpenAI Agents SDK: a host that runs the agent again after a model error charges the card once."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

from agents import Agent, Runner, Usage, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from examples.script import CALL, DONE, FAIL, ORDER, ModelError, Script
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from effectfence_pg import Fence


class ScriptedModel(Model):
    """A model that plays a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """The next message."""
        ids = self.script.next_calls()
        output: list[Any] = [
            ResponseFunctionToolCall(
                id=name, call_id=name, name="charge", arguments=json.dumps(ORDER), type="function_call"
            )
            for name in ids
        ] or [_text("The card is charged.")]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not played here."""
        raise NotImplementedError


def _text(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[part])


def run(charge: Callable[..., Any], script: Script) -> str:
    """Let an agent with this tool play the script."""
    set_tracing_disabled(disabled=True)
    # An error of the fence is an answer that the model can act on; see tool_message for the words.
    tool = function_tool(charge, failure_error_function=None)
    agent = Agent(name="biller", instructions="Charge orders.", tools=[tool], model=ScriptedModel(script))
    return str(Runner.run_sync(agent, "Charge order 7.").final_output)


def main() -> None:
    """One model error, and one charge."""
    with Fence(os.environ["EFFECTFENCE_DATABASE_URL"], namespace="openai-agents") as fence:

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
