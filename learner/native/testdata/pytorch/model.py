"""The built-in model in PyTorch: the reference that the Go code is compared with."""

import math

import torch
import torch.nn.functional as F

EPSILON = 1e-5


def shapes(dim, layers, hidden, context, vocab, tied):
    """Names and shapes of the tensors, as they are in a checkpoint."""
    out = {}
    for i in range(layers):
        out[f"layers.{i}.attention.qkv"] = (dim, 3 * dim)
        out[f"layers.{i}.attention.out"] = (dim, dim)
        out[f"layers.{i}.mlp.up"] = (dim, hidden)
        out[f"layers.{i}.mlp.down"] = (hidden, dim)
    if not tied:
        out["head"] = (vocab, dim)
    for name in ("token", "previous", "previous2"):
        out[f"embedding.{name}"] = (vocab, dim)
    out["embedding.position"] = (context, dim)
    for i in range(layers):
        out[f"layers.{i}.attention.norm"] = (dim,)
        out[f"layers.{i}.mlp.norm"] = (dim,)
    out["norm"] = (dim,)
    return out


def norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * gain


def embed(w, ids):
    """ids is batch × length; positions before the row's first token add nothing."""
    x = w["embedding.token"][ids] + w["embedding.position"][: ids.shape[1]]
    x = x + F.pad(w["embedding.previous"][ids[:, :-1]], (0, 0, 1, 0))
    return x + F.pad(w["embedding.previous2"][ids[:, :-2]], (0, 0, 2, 0))


def forward(w, ids, layers, heads):
    """Logits of every position of a batch of rows of equal length."""
    batch, n = ids.shape
    x = embed(w, ids)
    dim = x.shape[-1]
    mask = torch.full((n, n), float("-inf")).triu(1)
    for i in range(layers):
        p = f"layers.{i}."
        qkv = norm(x, w[p + "attention.norm"]) @ w[p + "attention.qkv"]
        q, k, v = (t.view(batch, n, heads, dim // heads).transpose(1, 2) for t in qkv.split(dim, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(dim // heads) + mask
        attended = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, n, dim)
        x = x + attended @ w[p + "attention.out"]
        up = norm(x, w[p + "mlp.norm"]) @ w[p + "mlp.up"]
        x = x + F.relu(up).pow(2) @ w[p + "mlp.down"]
    head = w["head"] if "head" in w else w["embedding.token"]
    return norm(x, w["norm"]) @ head.T
