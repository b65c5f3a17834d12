"""Runs the programs of this folder, every call in a process of its own.

Importing Agent Lightning takes seconds, so it is done once: the driver listens
on the Unix socket that its argument names and forks for every connection. A
request is one line of JSON with the members program, arguments, seconds and
log; the answer is {"result": …} or {"error": traceback}. A call that takes
longer than it may is killed with everything it started. The driver and its
calls end when its standard input does, so that none outlives the tests.
"""

import faulthandler
import importlib
import json
import logging
import os
import select
import signal
import socketserver
import sys
import traceback

PROGRAMS = ["calls", "running", "training", "exporting", "reading", "proxying", "conversing", "breaking", "asking", "looking", "adapting"]


class Call(socketserver.StreamRequestHandler):
    def handle(self):
        request = json.loads(self.rfile.readline())
        os.setpgid(0, 0)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(request["seconds"])
        logging.getLogger("agentlightning").setLevel(logging.INFO)
        try:
            program = importlib.import_module(request["program"])
            answer = {"result": program.main(**request["arguments"])}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        self.wfile.write(json.dumps(answer, separators=(",", ":")).encode())


def give_up(*_):
    print("the call took too long", file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    os.killpg(0, signal.SIGKILL)


class Driver(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 32

    def service_actions(self):
        super().service_actions()
        if select.select([sys.stdin], [], [], 0)[0] and not os.read(0, 1):
            for child in self.active_children or ():
                try:
                    os.killpg(child, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            os._exit(0)


if __name__ == "__main__":
    # Some packages talk on standard output while they are imported.
    answers = os.dup(1)
    os.dup2(2, 1)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    for name in PROGRAMS:
        importlib.import_module(name)
    with Driver(sys.argv[1], Call) as driver:
        os.write(answers, b"ready\n")
        driver.serve_forever(poll_interval=0.1)
