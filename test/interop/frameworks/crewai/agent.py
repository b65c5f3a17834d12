"""A crew of CrewAI with one member and two tools."""

import json
import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("add")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool("multiply")
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


accountant = Agent(
    role="accountant",
    goal="Calculate with the tools.",
    backstory="You never guess.",
    llm=LLM(model="openai/agent", base_url=os.environ["OPENAI_BASE_URL"], stream="--stream" in sys.argv),
    tools=[add, multiply],
    allow_delegation=False,
)
task = Task(description=json.loads(os.environ["AGL_TASK"]), expected_output="the number", agent=accountant)
answer = Crew(agents=[accountant], tasks=[task], verbose=False).kickoff().raw
print(json.dumps({"answer": answer, "reward": float("462" in answer)}))
