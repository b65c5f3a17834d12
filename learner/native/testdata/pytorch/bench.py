"""Tokens a second of the default model in PyTorch, as BenchmarkTrain and
BenchmarkSample measure them in Go.

    apt-get install python3-torch libopenblas0-pthread
    /usr/bin/python3 bench.py [--seconds 4] [--threads 2]

bench/pytorch.py at the root runs both and compares them.

Training: 64 rows of 40 to 60 tokens a step, of which the last 14 are targets,
padded to the longest as is usual. Sampling: prompts of 30 tokens, completions of
24, a batch of 64 or 128 with key-value cache. Each line states tokens a second
of wall time and of processor time; the latter does not depend on what else the
machine is doing.
"""

import argparse
import math
import os
import resource
import time

import torch
import torch.nn.functional as F

from model import embed, forward, norm, shapes

DIM, LAYERS, HEADS, HIDDEN, CONTEXT, VOCAB = 64, 2, 4, 256, 96, 384


def weights():
    return {k: (torch.ones(*s) if len(s) == 1 else 0.06 * torch.randn(*s)).requires_grad_()
            for k, s in shapes(DIM, LAYERS, HIDDEN, CONTEXT, VOCAB, False).items()}


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


def measure(name, work, seconds=4.0):
    work()
    tokens, wall, busy = 0, time.time(), cpu()
    while time.time() - wall < seconds:
        tokens += work()
    print(f"{name}: {tokens / (time.time() - wall):.0f} tokens/s, {tokens / (cpu() - busy):.0f} tokens/cpu-s", flush=True)


def training(w):
    lengths = [40 + (i * 13) % 21 for i in range(64)]
    longest = max(lengths)
    ids = torch.randint(VOCAB, (64, longest))
    mask = torch.zeros(64, longest)
    for i, n in enumerate(lengths):
        mask[i, n - 14:n] = 1
    adam = torch.optim.AdamW(list(w.values()), lr=1e-3)

    def step():
        adam.zero_grad()
        logits = forward(w, ids, LAYERS, HEADS)[:, :-1]
        on = mask[:, 1:].bool()
        F.cross_entropy(logits[on], ids[:, 1:][on]).backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        adam.step()
        return sum(lengths)

    return step


@torch.no_grad()
def sample(w, batch, prompt=30, new=24):
    ids = torch.randint(VOCAB, (batch, prompt))
    caches = [(torch.empty(batch, HEADS, 0, DIM // HEADS),) * 2 for _ in range(LAYERS)]
    done = 0
    for _ in range(new):
        n = ids.shape[1]
        x = embed(w, ids)[:, done:]
        fresh = x.shape[1]
        for i in range(LAYERS):
            p = f"layers.{i}."
            qkv = norm(x, w[p + "attention.norm"]) @ w[p + "attention.qkv"]
            q, k, v = (t.view(batch, fresh, HEADS, -1).transpose(1, 2) for t in qkv.split(DIM, -1))
            k, v = torch.cat([caches[i][0], k], 2), torch.cat([caches[i][1], v], 2)
            caches[i] = (k, v)
            scores = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
            if fresh > 1:
                scores = scores + torch.full((fresh, n), float("-inf")).triu(1)
            x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, fresh, DIM) @ w[p + "attention.out"]
            x = x + F.relu(norm(x, w[p + "mlp.norm"]) @ w[p + "mlp.up"]).pow(2) @ w[p + "mlp.down"]
        logits = norm(x[:, -1], w["norm"]) @ w["head"].T
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        done = n
    return batch * new


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    seconds = args.seconds
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    print("torch", torch.__version__, "threads", torch.get_num_threads())
    a, b = torch.randn(512, 512), torch.randn(512, 512)

    def product():
        torch.mm(a, b)
        return 2 * 512**3 // 1000

    measure("512x512x512 product, kFLOP as tokens", product, 1.0)
    measure("train", training(weights()), seconds)
    for batch in (64, 128):
        w = weights()
        measure(f"sample, {batch} in flight", lambda: sample(w, batch), seconds)


if __name__ == "__main__":
    main()
