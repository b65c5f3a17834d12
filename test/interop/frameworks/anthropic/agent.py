"""The tool loop of Anthropic's SDK."""

import json
import os
import sys

from anthropic import Anthropic, beta_tool


@beta_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: the one
        b: the other
    """
    return str(a + b)


@beta_tool
def multiply(a: int, b: int) -> str:
    """Multiply two numbers.

    Args:
        a: the one
        b: the other
    """
    return str(a * b)


runner = Anthropic().beta.messages.tool_runner(
    model="agent",
    max_tokens=256,
    system="Calculate with the tools.",
    tools=[add, multiply],
    messages=[{"role": "user", "content": json.loads(os.environ["AGL_TASK"])}],
    stream="--stream" in sys.argv,
)
last = None
for turn in runner:
    last = turn.get_final_message() if "--stream" in sys.argv else turn
answer = "".join(block.text for block in last.content if block.type == "text")
print(json.dumps({"answer": answer, "reward": float("462" in answer)}))
