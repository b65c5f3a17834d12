"""A graph of LangGraph: a model node and a tool node that take turns."""

import json
import os
import sys

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


tools = [add, multiply]
model = ChatOpenAI(model="agent", streaming="--stream" in sys.argv).bind_tools(tools)


def think(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("think", think)
graph.add_node("tools", ToolNode(tools))
graph.add_edge(START, "think")
graph.add_conditional_edges("think", tools_condition)
graph.add_edge("tools", "think")

question = [SystemMessage("Calculate with the tools."), HumanMessage(json.loads(os.environ["AGL_TASK"]))]
answer = graph.compile().invoke({"messages": question})["messages"][-1].content
print(json.dumps({"answer": answer, "reward": float("462" in answer)}))
