"""A fenced tool in LangGraph: a node that runs again after interrupt and resume, or after a crash, charges the card once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.script import CALL, DONE, ORDER, Script
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool as as_tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from effectfence_pg import Fence

THREAD: Any = {"configurable": {"thread_id": "order-7"}}


def run(charge: Callable[..., Any], script: Script, checkpoints: Path | None = None, *, ask: bool = False) -> str:
    """Let a graph with this tool play the script; with `ask` somebody has to approve after the tool, in the same node.

    With a file of checkpoints, a run that was interrupted or killed goes on where it was: at the beginning of its node.
    """

    def model(_: MessagesState) -> dict[str, Any]:
        calls = [{"name": "charge", "args": ORDER, "id": name} for name in script.next_calls()]
        return {"messages": [AIMessage("" if calls else "The card is charged.", tool_calls=calls)]}

    tools = ToolNode([as_tool(charge)])

    def act(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        done = tools.invoke(state, config)
        if ask:
            interrupt("Ship it?")
        elif checkpoints:
            script.between()
        return done

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("act", act)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "act" if state["messages"][-1].tool_calls else END)
    graph.add_edge("act", "model")
    if checkpoints is None:
        return _text(graph.compile().invoke({"messages": [("user", "Charge order 7.")]}))
    with SqliteSaver.from_conn_string(str(checkpoints)) as saver:
        compiled = graph.compile(checkpointer=saver)
        waiting = compiled.get_state(THREAD)
        # A run that was killed goes on with nothing new.
        first = None if waiting.next else {"messages": [("user", "Charge order 7.")]}
        # Every step is on disk before the next one begins.
        answer = compiled.invoke(first, THREAD, durability="sync")
        if ask:
            answer = compiled.invoke(Command(resume="yes"), THREAD, durability="sync")
        return _text(answer)


def _text(answer: Any) -> str:
    return str(answer["messages"][-1].content)


def main() -> None:
    """An approval in the middle of a node, and one charge."""
    with (
        Fence(os.environ["EFFECTFENCE_DATABASE_URL"], namespace="langgraph") as fence,
        tempfile.TemporaryDirectory() as directory,
    ):

        @fence.fenced(intent="charge:{order_id}", wait_seconds=30)
        def charge(order_id: str) -> str:
            """Charge the card of an order."""
            print(f"charging {order_id}")
            return f"receipt of {order_id}"

        print(run(charge, Script(CALL, DONE), Path(directory, "checkpoints"), ask=True))


if __name__ == "__main__":
    main()
