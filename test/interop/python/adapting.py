"""Gives spans to the adapters of Agent Lightning and says what they make of them."""

import json

import agentlightning as agl
from agentlightning.adapter.triplet import RewardMatchPolicy


def adapt(case):
    spans = [agl.Span.model_validate(s) for s in case["spans"]]
    options = dict(case["options"])
    if case["adapter"] == "messages":
        return agl.TraceToMessages().adapt(spans)
    if case["adapter"] == "proxy":
        adapter = agl.LlmProxyTraceToTriplet()
    else:
        options["reward_match"] = RewardMatchPolicy(options["reward_match"])
        adapter = agl.TracerTraceToTriplet(**options)
    return [t.model_dump(mode="json") for t in adapter.adapt(spans)]


def main(path):
    with open(path) as file:
        cases = json.load(file)
    results = []
    for case in cases:
        try:
            results.append({"output": adapt(case)})
        except Exception as error:  # which one does not matter, only that there is one
            results.append({"error": f"{type(error).__name__}: {error}"[:300]})
    return results
