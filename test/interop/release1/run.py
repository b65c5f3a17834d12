"""Runs the main of a module beside this one with the arguments that come on
standard input as JSON, and writes what it returns to file descriptor 3."""

import importlib
import json
import os
import sys

request = json.load(sys.stdin)
result = importlib.import_module(request["program"]).main(**request["arguments"])
with os.fdopen(3, "w") as out:
    json.dump(result, out)
