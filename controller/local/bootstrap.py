import asyncio
import importlib
import inspect
import sys
import traceback


async def finish(pending):
    return await pending


try:
    name = sys.argv[1]
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    agent = importlib.import_module(module)
    for part in attribute.split("."):
        agent = getattr(agent, part)
    result = agent().run()
    if inspect.isawaitable(result):
        asyncio.run(finish(result))
except Exception:
    traceback.print_exc()
    sys.exit(1)
