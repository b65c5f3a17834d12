"""A plain script with nothing but an HTTP client."""

import json
import os

import requests

FUNCTIONS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": NUMBERS}} for name in FUNCTIONS]

messages = [
    {"role": "system", "content": "Calculate with the tools."},
    {"role": "user", "content": json.loads(os.environ["AGL_TASK"])},
]
while True:
    answer = requests.post(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
        json={"model": "agent", "messages": messages, "tools": TOOLS},
        timeout=60,
    )
    answer.raise_for_status()
    message = answer.json()["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        result = FUNCTIONS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
print(json.dumps({"answer": message["content"], "reward": float("462" in message["content"])}))
