"""An agent of the OpenAI Agents SDK: two tools, one question, streamed or not."""

import asyncio
import json
import os
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def main() -> None:
    set_tracing_disabled(True)  # it would report to OpenAI
    set_default_openai_api(os.environ.get("DIALECT", "chat_completions"))
    agent = Agent(name="accountant", instructions="Calculate with the tools.", model="agent", tools=[add, multiply])
    if "--stream" in sys.argv:
        result = Runner.run_streamed(agent, json.loads(os.environ["AGL_TASK"]))
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, json.loads(os.environ["AGL_TASK"]))
    answer = result.final_output
    print(json.dumps({"answer": answer, "reward": float("462" in answer)}))


asyncio.run(main())
