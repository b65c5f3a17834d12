"""An agent of AutoGen (AgentChat) with two tools."""

import asyncio
import json
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def main() -> None:
    client = OpenAIChatCompletionClient(
        model="agent",
        base_url=os.environ["OPENAI_BASE_URL"],
        model_info={"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"},
    )
    agent = AssistantAgent(
        "accountant",
        model_client=client,
        tools=[add, multiply],
        system_message="Calculate with the tools.",
        max_tool_iterations=4,
        model_client_stream="--stream" in sys.argv,
    )
    result = await agent.run(task=json.loads(os.environ["AGL_TASK"]))
    await client.close()
    answer = result.messages[-1].content
    print(json.dumps({"answer": answer, "reward": float("462" in answer)}))


asyncio.run(main())
