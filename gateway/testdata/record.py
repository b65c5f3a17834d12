"""Plays requests against agentlightning 1.0.2's own server and writes down what
it answers, as recorded.json beside this file.

    python3.12 -m venv env && env/bin/pip install agentlightning==1.0.2
    env/bin/python record.py

UPSTREAM in a body stands for the base URL of a model server that this program
runs itself; the first part of its path says how it behaves.
"""

import http.server
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

KEY = "s3cret"
ASKED = []


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        manner = self.path.split("/")[1]
        ASKED.append({"path": self.path, "body": body.decode(), "authorization": self.headers.get("authorization")})
        status, kind, text = answer(manner, len(ASKED))
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("x-from-model", "1")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def answer(manner, number):
    good = (
        b'{"id": "c-1", "prompt_token_ids": [1, 2], "choices": [{"index": 0, "message": {"role": "assistant", "content": "h\xc3\xa9"},'
        b' "finish_reason": "stop", "token_ids": [3], "logprobs": {"content": [{"token": "t", "logprob": -0.5}]}}],'
        b' "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}, "big": 12345678901234567890, "f": 1.0}'
    )
    routed = good.replace(b'"token_ids": [3],', b'"token_ids": [3], "routed_experts": "QUJD",')
    return {
        "ok": (200, "application/json", good),
        "routed": (200, "application/json; charset=utf-8", routed),
        "text": (200, "text/plain", b"hello"),
        "bad": (400, "application/json", b'{"error": {"message": "maximum context length is 9", "code": 400}}'),
        "gone": (404, "text/html", b"<html>"),
    }[manner]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def requests(upstream):
    auth = {"authorization": "Bearer " + KEY}

    def r(name, method, path, body=None, headers=auth):
        out.append({"name": name, "method": method, "path": path, "body": body, "headers": headers})

    out = []
    r("health", "GET", "/healthz", headers={})
    r("health, wrong method", "POST", "/healthz", headers={})
    r("unknown path", "GET", "/api/nothing", headers={})
    r("unknown path below proxy", "POST", "/proxy/nothing", "{}", headers={})
    r("no key", "GET", "/api/rollouts?state_in=queuing", headers={})
    r("wrong key", "GET", "/api/rollouts?state_in=queuing", headers={"authorization": "Bearer x"})
    r("key comes before the body", "POST", "/api/rollouts", "{", headers={})
    r("other header", "GET", "/api/rollouts?state_in=queuing", headers={"x-api-key": KEY})
    r("no key for the proxy", "POST", "/proxy/rollout/a/attempt/0/mode/train/openai/v1/chat/completions", "{}", headers={})
    r("no key for the state", "GET", "/proxy/state", headers={})
    r("wrong method of rollouts", "PUT", "/api/rollouts", "[]", headers={})
    r("wrong method of one rollout", "POST", "/api/rollouts/a", "[]")
    r("wrong method of events", "GET", "/api/rollouts/a/attempt/0/events")
    r("wrong method of events of a rollout", "POST", "/api/rollouts/a/events", "{}")
    r("wrong method of models", "PUT", "/api/models", "[]")
    r("wrong method of pause", "GET", "/proxy/pause")
    r("wrong method of resume", "GET", "/proxy/resume")
    r("wrong method of state", "POST", "/proxy/state")
    r("wrong method of a call", "GET", "/proxy/rollout/a/attempt/0/mode/train/openai/v1/models")
    r("slash at the end", "GET", "/api/rollouts/?state_in=queuing")
    r("slash at the end of a post", "POST", "/api/models/", "[]")

    r("no rollouts", "POST", "/api/rollouts", "[]")
    r("full rollout", "POST", "/api/rollouts", '[{"rollout_id": "r-full", "input": {"q": 1.0, "é": [1, null, 12345678901234567890]}, "is_train": false, "config": {"timeout_seconds": 7, "local": {"agent_class": "m.C", "env_map": {"A": "input.q"}}, "k8s": {"job_template": "x"}, "other": 1}, "metadata": {"foo": {"bar": 1}, "sample_idx_in_batch": 2, "batch_idx": 1}, "extra": 1}]')
    r("smallest rollout", "POST", "/api/rollouts", '[{"input": null}, {"rollout_id": "r-1", "input": "text"}, {"rollout_id": "", "input": 1}]')
    r("again, other input", "POST", "/api/rollouts", '[{"rollout_id": "r-1", "input": "other", "is_train": false}]')
    r("twice in one list", "POST", "/api/rollouts", '[{"rollout_id": "r-2", "input": 1}, {"rollout_id": "r-2", "input": 2}]')
    r("lenient values", "POST", "/api/rollouts", '[{"rollout_id": "r-lax", "input": NaN, "is_train": "yes", "config": {"timeout_seconds": "7", "local": null}, "metadata": {"batch_idx": 7.0, "sample_idx_in_batch": null}}]')
    r("lenient values, more", "POST", "/api/rollouts", '[{"rollout_id": "r-lax2", "input": [Infinity, -Infinity], "is_train": 0, "config": {"timeout_seconds": true, "local": {}, "k8s": {}}, "metadata": null}]')
    r("no content type", "POST", "/api/rollouts", "[]", headers={**auth, "content-type": "text/plain"})
    r("input missing", "POST", "/api/rollouts", "[{}]")
    r("body missing", "POST", "/api/rollouts")
    r("body not a list", "POST", "/api/rollouts", "{}")
    r("body null", "POST", "/api/rollouts", "null")
    r("not JSON", "POST", "/api/rollouts", '[{"input": }]')
    r("item no object", "POST", "/api/rollouts", "[1, null]")
    r("wrong types", "POST", "/api/rollouts", '[{"input": 1, "is_train": "maybe", "config": 1, "rollout_id": 7}]')
    r("wrong types, null", "POST", "/api/rollouts", '[{"input": 1, "is_train": null}, {"input": 1, "is_train": []}, {"input": 1, "is_train": 2}]')
    r("wrong types in config", "POST", "/api/rollouts", '[{"input": 1, "config": {"timeout_seconds": 1.5, "local": {"agent_class": 1, "env_map": {"A": 1}}, "k8s": []}}]')
    r("wrong types in config, more", "POST", "/api/rollouts", '[{"input": 1, "config": {"timeout_seconds": "x", "local": {"env_map": []}}}, {"input": 1, "config": {"timeout_seconds": null}}, {"input": 1, "config": {"timeout_seconds": []}}]')
    r("nothing was stored of it", "GET", "/api/rollouts?state_in=queuing&limit=2")

    r("list, no state", "GET", "/api/rollouts")
    r("list, unknown state", "GET", "/api/rollouts?state_in=done")
    r("list, second state unknown", "GET", "/api/rollouts?state_in=queuing&state_in=preparing")
    r("list, limit no number", "GET", "/api/rollouts?state_in=queuing&limit=x")
    r("list, limit fractional", "GET", "/api/rollouts?state_in=queuing&limit=1.5")
    r("list, limit whole float", "GET", "/api/rollouts?state_in=queuing&limit=1.0")
    r("list, limit empty", "GET", "/api/rollouts?state_in=queuing&limit=")
    r("list, no rows", "GET", "/api/rollouts?state_in=queuing&limit=0")
    r("list, other states", "GET", "/api/rollouts?state_in=running&state_in=succeeded&state_in=failed")
    r("list, all", "GET", "/api/rollouts?state_in=queuing&state_in=queuing&state_in=running")
    r("one", "GET", "/api/rollouts/r-full")
    r("one, unknown", "GET", "/api/rollouts/nobody")

    r("patch unknown", "PATCH", "/api/rollouts/nobody", "{}")
    r("patch unknown, bad body", "PATCH", "/api/rollouts/nobody", "[]")
    r("patch, no body", "PATCH", "/api/rollouts/r-1")
    r("patch nothing", "PATCH", "/api/rollouts/r-1", "{}")
    r("patch null", "PATCH", "/api/rollouts/r-1", '{"status": null, "x": 1}')
    r("patch empty", "PATCH", "/api/rollouts/r-1", '{"status": {}}')
    r("patch other member", "PATCH", "/api/rollouts/r-1", '{"status": {"version": 7, "x": 1}}')
    r("patch unknown state", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "preparing"}}')
    r("patch wrong types", "PATCH", "/api/rollouts/r-1", '{"status": {"state": 1, "error_message": 1, "last_attempt_id": [], "k8s_job_name": {}}}')
    r("patch status no object", "PATCH", "/api/rollouts/r-1", '{"status": 1}')
    r("patch to the same", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "queuing"}}')
    r("patch to the end at once", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "succeeded"}}')
    r("patch state null", "PATCH", "/api/rollouts/r-1", '{"status": {"state": null}}')
    r("patch refused, nothing applied", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "succeeded", "error_message": "x"}}')
    r("patch running", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "running", "last_attempt_id": "0", "k8s_job_name": "j"}}')
    r("patch field", "PATCH", "/api/rollouts/r-1", '{"status": {"k8s_job_name": null, "error_message": "é"}}')
    r("patch succeeded", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "succeeded"}}')
    r("patch after the end", "PATCH", "/api/rollouts/r-1", '{"status": {"state": "failed"}}')
    r("patch field after the end", "PATCH", "/api/rollouts/r-1", '{"status": {"error_message": null}}')
    r("patch failed", "PATCH", "/api/rollouts/r-full", '{"status": {"state": "failed", "error_message": "no"}}')

    r("terminal", "GET", "/api/rollouts/terminal")
    r("terminal, after", "GET", "/api/rollouts/terminal?after=1&limit=1")
    r("terminal, beyond", "GET", "/api/rollouts/terminal?after=9")
    r("terminal, raised", "GET", "/api/rollouts/terminal?after=-3&limit=0")
    r("terminal, no numbers", "GET", "/api/rollouts/terminal?after=x&limit=")
    for i, value in enumerate(['{"data_id": "d", "instance_id": "i"}', '{"data_id": 0, "instance_id": "i"}', '{"data_id": "", "instance_id": 7}', '{"data_id": 1.5}', '{"data_id": true}', '{"data_id": [], "instance_id": null}', '[1]', '{"data_id": {"a": 1}}', '{"data_id": ["x", null]}', '{"instance_id": 12345678901234567890}', '{"data_id": "é"}']):
        r(f"data id {i}", "POST", "/api/rollouts", f'[{{"rollout_id": "d-{i}", "input": {value}}}]')
        r(f"data id {i}, ended", "PATCH", f"/api/rollouts/d-{i}", '{"status": {"state": "failed"}}')
    r("terminal, data ids", "GET", "/api/rollouts/terminal?after=2")
    r("delete", "DELETE", "/api/rollouts/d-0")
    r("delete again", "DELETE", "/api/rollouts/d-0")
    r("terminal, one deleted", "GET", "/api/rollouts/terminal?after=2&limit=2")
    r("deleted, created", "POST", "/api/rollouts", '[{"rollout_id": "d-0", "input": {"data_id": "new"}}]')
    r("deleted, ended again", "PATCH", "/api/rollouts/d-0", '{"status": {"state": "failed"}}')
    r("terminal, twice", "GET", "/api/rollouts/terminal?after=2&limit=1")
    r("terminal, twice, last", "GET", "/api/rollouts/terminal?after=13")

    r("event of unknown rollout", "POST", "/api/rollouts/nobody/attempt/0/events", '{"event_type": "x"}')
    r("event of unknown rollout, bad body", "POST", "/api/rollouts/nobody/attempt/0/events", "{}")
    r("events of unknown rollout", "GET", "/api/rollouts/nobody/events")
    r("event, no type", "POST", "/api/rollouts/r-2/attempt/0/events", "{}")
    r("event, no body", "POST", "/api/rollouts/r-2/attempt/0/events")
    r("event, type no text", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": 1, "data": null}')
    r("event, data no object", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "x", "data": [1]}')
    r("event, body a list", "POST", "/api/rollouts/r-2/attempt/0/events", "[]")
    r("no events", "GET", "/api/rollouts/r-2/events")
    r("event", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "step", "data": {"b": 1.0, "a": [NaN, "é", 12345678901234567890]}, "x": 1}')
    r("event, no data", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": ""}')
    r("reward", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "reward", "data": {"value": 1, "message": "m", "source": "agent", "reason": null, "x": 2}}')
    r("reward without value", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "reward", "data": {}}')
    r("event of another attempt", "POST", "/api/rollouts/r-2/attempt/second/events", '{"event_type": "other"}')
    r("model request", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "model_request", "data": {"response": {"prompt_token_ids": [1], "choices": [{"token_ids": [2], "logprobs": {"token_logprobs": ["-0.5"]}}]}, "server": {"model": "m", "endpoint": "e", "version": 3}, "routed_experts": "QQ==", "http_status": 200}}')
    r("detail with attempts", "GET", "/api/rollouts/r-2")
    r("events", "GET", "/api/rollouts/r-2/events")
    r("events of a type", "GET", "/api/rollouts/r-2/events?event_type=reward")
    r("events of no type", "GET", "/api/rollouts/r-2/events?event_type=")
    r("events as triplets", "GET", "/api/rollouts/r-2/events?format=triplet")
    r("events in another format", "GET", "/api/rollouts/r-2/events?format=x&event_type=step")
    r("events without routes", "GET", "/api/rollouts/r-2/events?event_type=model_request&include_routed_experts=no")
    r("triplets without routes", "GET", "/api/rollouts/r-2/events?event_type=model_request&include_routed_experts=false&format=triplet")
    r("events, routes no truth", "GET", "/api/rollouts/r-2/events?include_routed_experts=maybe")
    r("later request", "POST", "/api/rollouts/r-2/attempt/0/events", '{"event_type": "model_request", "data": {"response": {"prompt_token_ids": [1, 2], "choices": [{"token_ids": [3]}]}, "server": {"model": "m"}, "routed_experts": "Qg=="}}')
    r("routes are kept once", "GET", "/api/rollouts/r-2/events?event_type=model_request")
    r("read another attempt", "PATCH", "/api/rollouts/r-2", '{"status": {"last_attempt_id": "second"}}')
    r("events of the last attempt", "GET", "/api/rollouts/r-2/events")
    r("read an empty attempt", "PATCH", "/api/rollouts/r-2", '{"status": {"last_attempt_id": ""}}')
    r("events of no attempt", "GET", "/api/rollouts/r-2/events?event_type=step")
    r("event after the end", "POST", "/api/rollouts/r-1/attempt/0/events", '{"event_type": "late"}')

    r("models, none", "POST", "/api/models", "[]")
    r("models", "POST", "/api/models", '[{"model": "m", "endpoint": "http://127.0.0.1:9/v1", "version": "3", "x": 1}, {"model": "m", "endpoint": "http://127.0.0.1:9/v1"}, {"model": "n", "endpoint": "http://127.0.0.1:8/v1", "version": -1}]')
    r("models, missing", "POST", "/api/models", '[{"model": "m"}, {"endpoint": "e"}]')
    r("models, wrong types", "POST", "/api/models", '[{"model": 1, "endpoint": null, "version": 1.5}]')
    r("models, version no number", "POST", "/api/models", '[{"model": "m", "endpoint": "e", "version": "x"}, 1]')
    r("models, no list", "POST", "/api/models", "{}")
    r("models, no body", "POST", "/api/models")
    r("models, forgotten", "DELETE", "/api/models")

    call = "/proxy/rollout/%s/attempt/0/mode/%s/openai/v1/%s"
    r("call, mode", "POST", call % ("r-2", "test", "chat/completions"), "{")
    r("call, path", "POST", call % ("r-2", "train", "embeddings"), "{")
    r("call, rollout", "POST", call % ("nobody", "train", "chat/completions"), "{")
    r("call, not JSON", "POST", call % ("r-2", "train", "chat/completions"), "{")
    r("call, a list", "POST", call % ("r-2", "train", "chat/completions"), "[]")
    r("call, null", "POST", call % ("r-2", "train", "chat/completions"), "null")
    r("call, no servers", "POST", call % ("r-2", "train", "chat/completions"), "{}")
    chat = '{"model": "auto", "messages": [{"role": "user", "content": "hé"}], "temperature": 0.1, "max_tokens": 5, "logprobs": false, "stream": false}'
    for manner in ["ok", "routed", "text", "bad", "gone"]:
        r(f"model {manner}", "POST", "/api/models", f'[{{"model": "test-model", "endpoint": "UPSTREAM/{manner}/v1/", "version": 4}}]')
        r(f"rollout {manner}", "POST", "/api/rollouts", f'[{{"rollout_id": "c-{manner}", "input": 1}}]')
        r(f"call {manner}", "POST", call % (f"c-{manner}", "train", "chat/completions"), chat)
        r(f"events {manner}", "GET", f"/api/rollouts/c-{manner}/events")
        r(f"triplets {manner}", "GET", f"/api/rollouts/c-{manner}/events?format=triplet")
        r(f"forget {manner}", "DELETE", "/api/models")
    r("model again", "POST", "/api/models", '[{"model": "test-model", "endpoint": "UPSTREAM/ok/v1", "version": 4}]')
    r("call for validation", "POST", call % ("c-ok", "val", "completions"), '{"prompt": [1, 2], "stream": null}')
    r("call without a body", "POST", call % ("c-ok", "train", "chat/completions"))
    r("all its events", "GET", "/api/rollouts/c-ok/events?event_type=model_request")

    r("state", "GET", "/proxy/state")
    r("pause, no body", "POST", "/proxy/pause")
    r("pause, wrong types", "POST", "/proxy/pause", '{"retry_after_seconds": 1.5, "reason": 1}')
    r("pause", "POST", "/proxy/pause", '{"retry_after_seconds": "7", "reason": "new wéights", "x": 1}')
    r("call while paused", "POST", call % ("c-ok", "train", "chat/completions"), "{}")
    r("call of nobody while paused", "POST", call % ("nobody", "train", "chat/completions"), "{}")
    r("event while paused", "POST", "/api/rollouts/c-ok/attempt/0/events", '{"event_type": "step"}')
    r("pause again", "POST", "/proxy/pause", "{}")
    r("call while paused without a reason", "POST", call % ("c-ok", "train", "chat/completions"), '{"stream": true}')
    r("pause for long", "POST", "/proxy/pause", '{"retry_after_seconds": 9}')
    r("state while paused", "GET", "/proxy/state")
    r("resume", "POST", "/proxy/resume")
    r("resume again", "POST", "/proxy/resume", "{}")
    r("calls of the end", "GET", "/api/rollouts/c-ok/events?event_type=model_request&format=triplet")
    return out


def send(base, request, upstream):
    body = request["body"]
    data = None if body is None else body.replace("UPSTREAM", upstream).encode()
    headers = {"content-type": "application/json", **request["headers"]}
    if data is None:
        headers.pop("content-type")
    q = urllib.request.Request(base + urllib.request.quote(request["path"], safe="/?&=%"), data, headers, method=request["method"])
    try:
        a = urllib.request.build_opener(Stay).open(q, timeout=60)
    except urllib.error.HTTPError as e:
        a = e
    kept = {k: v for k, v in a.headers.items() if k.lower() in ("allow", "retry-after", "x-agl-paused", "location", "content-type", "x-from-model")}
    if "location" in kept:
        kept["location"] = kept["location"].replace(base, "")
    return {"status": a.status, "headers": {k.lower(): v for k, v in kept.items()}, "body": a.read().decode()}


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def main():
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{model.server_port}"
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-m", "agentlightning.server", f"port={port}", "host=127.0.0.1", f"key={KEY}",
        "default_proxy.model_name=test-model", "default_proxy.include_routed_experts=true"], cwd="/tmp")
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(base + "/healthz")
                break
            except OSError:
                time.sleep(0.1)
        out = []
        for request in requests(upstream):
            del ASKED[:]
            request["answer"] = send(base, request, upstream)
            if ASKED:
                request["asked"] = list(ASKED)
            if "time" in request:
                del request["time"]
            out.append(request)
    finally:
        server.terminate()
        server.wait()
    text = json.dumps({"version": "1.0.2", "key": KEY, "requests": out}, indent=1, ensure_ascii=False).replace(upstream, "UPSTREAM")
    pathlib.Path(__file__).with_name("recorded.json").write_text(text + "\n")


main()
