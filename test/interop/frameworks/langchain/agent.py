"""An agent of LangChain: a chat model with tools, called until it has an answer."""

import json
import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


agent = create_agent(
    ChatOpenAI(model="agent", streaming="--stream" in sys.argv),
    [add, multiply],
    system_prompt="Calculate with the tools.",
)
result = agent.invoke({"messages": [{"role": "user", "content": json.loads(os.environ["AGL_TASK"])}]})
answer = result["messages"][-1].content
print(json.dumps({"answer": answer, "reward": float("462" in answer)}))
