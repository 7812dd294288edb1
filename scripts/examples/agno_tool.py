"""A fenced tool in agno: when a model error makes the agent run again as a whole, the card is charged once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from agno.agent import Agent
from agno.exceptions import ModelProviderError
from agno.models.base import Model
from agno.models.response import ModelResponse
from examples.script import CALL, DONE, FAIL, ORDER, ModelError, Script

from effectfence_pg import Fence


class ScriptedModel(Model):
    """A model that plays a script."""

    def __init__(self, script: Script) -> None:
        super().__init__(id="scripted", name="scripted", provider="none")
        self.script = script

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        """The next message."""
        try:
            ids = self.script.next_calls()
        except ModelError as error:
            raise ModelProviderError(str(error)) from error
        if not ids:
            return ModelResponse(role="assistant", content="The card is charged.")
        function = {"name": "charge", "arguments": json.dumps(ORDER)}
        calls = [{"id": name, "type": "function", "function": function} for name in ids]
        return ModelResponse(role="assistant", tool_calls=calls)

    async def ainvoke(self, *args: Any, **more: Any) -> ModelResponse:
        """The same."""
        return self.invoke(*args, **more)

    def invoke_stream(self, *args: Any, **more: Any) -> Any:
        """The same, at once."""
        yield self.invoke(*args, **more)

    async def ainvoke_stream(self, *args: Any, **more: Any) -> Any:
        """The same, at once."""
        yield self.invoke(*args, **more)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def run(charge: Callable[..., str], script: Script) -> str:
    """Let an agent with this tool play the script; agno tries the whole run again after a model error."""
    agent = Agent(model=ScriptedModel(script), tools=[charge], retries=2, delay_between_retries=0, telemetry=False)
    return str(agent.run("Charge order 7.").content)


def main() -> None:
    """Two model errors, and one charge."""
    with Fence(os.environ["EFFECTFENCE_DATABASE_URL"], namespace="agno") as fence:

        @fence.fenced(intent="charge:{order_id}", wait_seconds=30)
        def charge(order_id: str) -> str:
            """Charge the card of an order."""
            print(f"charging {order_id}")
            return f"receipt of {order_id}"

        print(run(charge, Script(CALL, FAIL, CALL, FAIL, CALL, DONE)))


if __name__ == "__main__":
    main()
