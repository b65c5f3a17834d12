"""What clients do when a call does not go well: they leave, or take in what went wrong."""

import asyncio
import os
import signal
import time
import urllib.request

import anthropic
import openai
from conversing import DIALECTS, Failed, connect, done, each, opened

ENOUGH = 4  # events of a stream, of those that then do not come any more


async def read(stream):
    """Returns once enough was read."""
    seen = 0
    async for _ in each(stream):
        seen += 1
        if seen == ENOUGH:
            return


async def close(talk, _):
    stream = await talk.create(stream=True)
    await read(stream)
    left = time.time()
    await done(stream.close())
    return {"left": left}


async def cancel(talk, _):
    """Ends the task that waits for more."""
    stream, enough = await talk.create(stream=True), asyncio.Event()

    async def wait():
        await read(stream)
        enough.set()
        async for _ in each(stream):
            pass

    task = asyncio.create_task(wait())
    await enough.wait()
    left = time.time()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await done(stream.close())
    return {"left": left}


async def whole(talk, cue):
    """Leaves on cue while an answer is awaited that comes in one piece."""
    task = asyncio.create_task(talk.create())
    await asyncio.to_thread(lambda: urllib.request.urlopen(cue).read())
    left = time.time()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {"left": left}


async def killed(talk, _):
    """Has the process end without a word."""
    child = os.fork()
    if child == 0:
        try:
            await read(await talk.create(stream=True))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    return {"left": time.time()}


async def fails(talk, _):
    """Says what the client made of an error."""
    began = time.time()
    try:
        step = await getattr(talk, talk.mode)()
    except (openai.APIError, anthropic.APIError, Failed) as e:
        return {
            "error": type(e).__name__, "message": str(e), "status": getattr(e, "status_code", None), "seconds": time.time() - began,
        }
    return {"text": step["text"], "seconds": time.time() - began}


def main(url, key, model, dialect, mode, awaited, way, cue=None, retries=0, timeout=0):
    async def run():
        async with opened(connect(url, key, dialect, awaited, {}, max_retries=retries, **({"timeout": timeout} if timeout else {}))) as client:
            talk = DIALECTS[dialect](client, model, mode)
            talk.ask("What is (12+30)·(5+6)?")
            return await globals()[way](talk, cue)

    return asyncio.run(run())
