"""Starts LiteLLM's proxy with one model, "mock", in front of a backend, to be compared with ours.

    python bench/peer_litellm.py --backend http://127.0.0.1:9001/v1 --port 4801 [--store http://127.0.0.1:5841]

With --store it is the proxy of Agent Lightning 0.3.0 as that uses it: LiteLLM with its middleware and
callbacks in a process of its own, which asks the backend for token ids and writes spans to the store, a
server of the 0.3 protocol. Without, it is LiteLLM alone, which records nothing. Printed is the base URL
for clients, with --store that of an attempt. It runs until it is interrupted.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

# Agent Lightning 0.3 sets no key; newer LiteLLM starts without one only when told to. Nothing is
# fetched from the internet.
os.environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "True"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


# LiteLLM talks on standard output, which is for the URL.
answers = os.dup(1)
os.dup2(2, 1)


def say(line):
    os.write(answers, f"{line}\n".encode())


def models(backend):
    return [{"model_name": "mock", "litellm_params": {"model": "hosted_vllm/mock", "api_base": backend, "api_key": "none"}}]


def alone(backend, port):
    # JSON is YAML, too.
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        json.dump({"model_list": models(backend)}, config)
        config.flush()
        command = [os.path.join(os.path.dirname(sys.executable), "litellm"), "--config", config.name, "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command)
        try:
            ready(port, server)
            say(f"http://127.0.0.1:{port}/v1")
            server.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.terminate()
            server.wait()


def ready(port, server):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"litellm ended with status {server.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).read()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("litellm did not start within a minute")


async def with_store(backend, port, url):
    import agentlightning as agl

    store = agl.LightningStoreClient(url)
    proxy = agl.LLMProxy(port=port, host="127.0.0.1", model_list=models(backend), store=store)
    await proxy.start()
    try:
        rollout = await store.start_rollout({"measured": "proxy"})
        say(proxy.as_resource(rollout.rollout_id, rollout.attempt.attempt_id, model="mock").endpoint + "/v1")
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
    finally:
        await proxy.stop()
        await store.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--backend", required=True, help="base URL of an OpenAI-compatible backend")
    arguments.add_argument("--port", type=int, default=4801)
    arguments.add_argument("--store", help="server of the 0.3 store protocol to write spans to")
    a = arguments.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if a.store:
        asyncio.run(with_store(a.backend, a.port, a.store))
    else:
        alone(a.backend, a.port)


if __name__ == "__main__":
    main()
