"""The faults, and which framework is driven through which."""

from __future__ import annotations

from typing import Final

RETRIED: Final = "the whole run is tried again after a model error"
EQUAL: Final = "two equal calls in one message"
KILLED: Final = "killed between the tool and its record"
INTERRUPTED: Final = "the node runs again after interrupt and resume"

COMMON: Final = (RETRIED, EQUAL, KILLED)
FAULTS: Final = {
    "langgraph": (*COMMON, INTERRUPTED),
    "openai_agents": COMMON,
    "pydantic_ai": COMMON,
    "agno": COMMON,
}
PACKAGES: Final = {
    "langgraph": "langgraph",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
    "agno": "agno",
}
ANSWER: Final = "The card is charged."
