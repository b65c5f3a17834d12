"""Starts stores of the Python implementation on request.

GET /new?debounce=SECONDS answers the port of a fresh server on the loopback.
The package's own __init__ is left out: it imports far more than the store needs.
Needs: agentlightning 0.3 (pip install --no-deps), aiohttp aiologic fastapi gunicorn
opentelemetry-sdk opentelemetry-exporter-otlp-proto-http portpicker psutil pydantic rich
setproctitle uvicorn uvicorn-worker.
"""

import asyncio
import http.server
import importlib.util
import logging
import os
import sys
import threading
import types
import urllib.parse

spec = importlib.util.find_spec("agentlightning")
package = types.ModuleType("agentlightning")
package.__path__ = list(spec.submodule_search_locations)
sys.modules["agentlightning"] = package

import portpicker  # noqa: E402
from agentlightning.store.client_server import LightningStoreServer  # noqa: E402
from agentlightning.store.memory import InMemoryLightningStore  # noqa: E402

logging.disable(logging.CRITICAL)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


async def new_server(debounce):
    port = portpicker.pick_unused_port()
    store = InMemoryLightningStore(thread_safe=True, scan_debounce_seconds=debounce)
    await LightningStoreServer(store, host="127.0.0.1", port=port, launch_mode="asyncio").start()
    return port


class Control(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        port = asyncio.run_coroutine_threadsafe(new_server(float(query["debounce"][0])), loop).result(60)
        body = str(port).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Control)
print(control.server_port, flush=True)
threading.Thread(target=control.serve_forever, daemon=True).start()
sys.stdin.read()  # until the test is over
os._exit(0)
