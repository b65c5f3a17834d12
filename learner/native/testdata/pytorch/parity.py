"""Writes parity.json: rows, and what PyTorch makes of them with known weights.

    apt-get install python3-torch
    /usr/bin/python3 parity.py

TestPyTorchParity compares the Go implementation with the numbers. Everything is
float32 on one thread. Advantages and old log-probabilities are such that some
ratios are clipped on either side.

To keep the file small, the weights come from a formula that the test repeats,
and of gradients and new weights every seventh number is recorded (which visits
every column) beside the norm of the whole tensor.
"""

import json
import math
import os

import torch

from model import forward, shapes

SHAPE = dict(dim=32, layers=2, heads=2, hidden=48, context=12)
WORDS = [" one", " two"]
VOCAB = 256 + 5 + len(WORDS)
ROWS = [12, 5, 9, 2]
OPTIMIZER = dict(learning_rate=3e-3, beta1=0.9, beta2=0.98, weight_decay=0.1, clip_low=0.2, clip_high=0.3, max_grad_norm=0.5)
STEPS = 3
EVERY = 7


def flat(t):
    return [float(f"{v:.9g}") for v in t.detach().flatten().tolist()]


def digest(t):
    t = t.detach().flatten()
    return dict(norm=float(t.double().norm()), values=flat(t[::EVERY]))


class Formula:
    """Weights that any language can repeat: a 64-bit linear congruential generator."""

    def __init__(self):
        self.state = 1

    def number(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return ((self.state >> 33) % 2048 - 1024) / 1024

    def tensor(self, shape):
        values = torch.tensor([self.number() for _ in range(math.prod(shape))]).view(*shape)
        return 1 + values / 8 if len(shape) == 1 else values * 0.375


def loss_of(w, rows, objective):
    """Mean over masked tokens, weighted by the mask."""
    total, weight = 0.0, 0.0
    for r in rows:
        logits = forward(w, torch.tensor([r["ids"]]), SHAPE["layers"], SHAPE["heads"])[0]
        ids = torch.tensor(r["ids"][1:])
        logprob = logits[:-1].log_softmax(-1).gather(1, ids[:, None])[:, 0]
        mask = torch.tensor(r["mask"][1:])
        if objective == "imitation":
            loss = -logprob
        else:
            advantage = torch.tensor(r["advantages"][1:])
            ratio = (logprob - torch.tensor(r["logprobs"][1:])).exp()
            held = ratio.clamp(1 - OPTIMIZER["clip_low"], 1 + OPTIMIZER["clip_high"])
            loss = -torch.minimum(ratio * advantage, held * advantage)
        total = total + (loss * mask).sum()
        weight += float(mask.sum())
    return total / weight


def case(objective, tied, generator):
    def normal(*size):
        return torch.randn(*size, generator=generator)

    w, formula = {}, Formula()
    for name, shape in shapes(SHAPE["dim"], SHAPE["layers"], SHAPE["hidden"], SHAPE["context"], VOCAB, tied).items():
        w[name] = formula.tensor(shape).requires_grad_()
    rows = []
    for n in ROWS:
        ids = torch.randint(VOCAB, (n,), generator=generator)
        with torch.no_grad():
            logits = forward(w, ids[None], SHAPE["layers"], SHAPE["heads"])[0].log_softmax(-1)
        old = [0.0] + [float(logits[t - 1, ids[t]]) + 0.4 * float(normal(1)) for t in range(1, n)]
        rows.append(dict(
            ids=ids.tolist(),
            mask=[0.0] + [float(m) for m in torch.randint(3, (n - 1,), generator=generator).tolist()[:-1]] + [1.0],
            logprobs=[float(f"{v:.9g}") for v in old],
            advantages=flat(normal(n)),
        ))
    first = rows[0]
    with torch.no_grad():
        logits = forward(w, torch.tensor([first["ids"]]), SHAPE["layers"], SHAPE["heads"])[0]
    out = dict(objective=objective, tied=tied, rows=rows, logits=digest(logits))

    loss = loss_of(w, rows, objective)
    grads = torch.autograd.grad(loss, list(w.values()))
    out["loss"] = float(loss)
    out["grads"] = {k: digest(g) for k, g in zip(w, grads)}

    # Matrices decay, tables and gains do not; a tied table does not either.
    decayed = [v for k, v in w.items() if v.dim() == 2 and not k.startswith("embedding.")]
    others = [v for k, v in w.items() if v.dim() == 1 or k.startswith("embedding.")]
    o = OPTIMIZER
    adam = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=o["weight_decay"]), dict(params=others, weight_decay=0.0)],
        lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=1e-8)
    norms = []
    for _ in range(STEPS):
        adam.zero_grad()
        loss_of(w, rows, objective).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(w.values()), o["max_grad_norm"])))
        adam.step()
    out["grad_norms"] = norms
    out["after"] = {k: digest(v) for k, v in w.items()}
    return out


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20)
    cases = [case("imitation", False, generator), case("policy_gradient", False, generator), case("policy_gradient", True, generator)]
    doc = dict(torch=torch.__version__, shape=SHAPE, words=WORDS, optimizer=OPTIMIZER, steps=STEPS, every=EVERY, cases=cases)
    assert all(math.isfinite(c["loss"]) for c in cases)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parity.json")
    with open(path, "w") as f:
        json.dump(doc, f, separators=(",", ":"))
        f.write("\n")
    print(path, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
