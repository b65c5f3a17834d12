"""Records what verl's losses and GDPO make of random numbers, for ../../verl_test.go.

    pip download verl==0.7.1 --no-deps && unzip -q verl-0.7.1-*.whl -d verl-0.7.1
    python3 generate.py verl-0.7.1/verl > losses.json    # needs torch and numpy, on the CPU

The functions are taken out of their files one by one and run as they are.
"""

import ast
import json
import sys
import types
from collections import defaultdict

import numpy as np
import torch

FOLDER = sys.argv[1]
LOSSES = {  # function, spread of log-ratios, low, high, aggregations
    "ppo": ("compute_policy_loss_vanilla", 0.4, 0.2, 0.28, ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]),
    "gspo": ("compute_policy_loss_gspo", 0.002, 3e-4, 4e-4, ["seq-mean-token-mean"]),
    "gmpo": ("compute_policy_loss_geo_mean", 0.5, 0.4, 0.4, ["seq-mean-token-mean"]),
    "cispo": ("compute_policy_loss_cispo", 1.2, 0.2, 4.0, ["token-mean", "seq-mean-token-sum"]),
    "dppo": ("compute_policy_loss_dppo_tv", 0.8, 0.2, 0.25, ["token-mean", "seq-mean-token-mean"]),
    "reinforce": ("compute_policy_loss_gpg", 0.5, 0.0, 0.0, ["token-mean"]),
}


class ActorConfig(dict):
    def __getattr__(self, name):
        return self.get(name)


class AlgoConfig:
    pass


def take(path, names, into):
    for node in ast.parse(open(FOLDER + path).read()).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list, node.returns = [], None
            for a in node.args.args + node.args.kwonlyargs + [node.args.vararg, node.args.kwarg]:
                if a is not None:
                    a.annotation = None
            exec(compile(ast.Module([node], []), path, "exec"), into)


def rows(t):
    return [[round(float(x), 7) for x in row] for row in t.tolist()]


def exactly(t):
    return torch.tensor(rows(t))


masked = {"torch": torch}
take("/utils/torch_functional.py", ["masked_sum", "masked_mean", "masked_var", "masked_whiten"], masked)
core = {
    "torch": torch, "np": np, "defaultdict": defaultdict, "AlgoConfig": AlgoConfig, "ActorConfig": ActorConfig,
    "verl_F": types.SimpleNamespace(**{k: v for k, v in masked.items() if k.startswith("masked")}),
}
take("/trainer/ppo/core_algos.py", ["agg_loss", "compute_grpo_outcome_advantage", "compute_gdpo_outcome_advantage"] + [f for f, *_ in LOSSES.values()], core)

torch.manual_seed(5)
losses = []
for name, (function, spread, low, high, modes) in LOSSES.items():
    for mode in modes:
        for i in range(3):
            mask = torch.ones(4, 6)
            for row in mask:
                row[int(torch.randint(2, 7, (1,))):] = 0
            if i == 2:
                mask[1, 1] = 0
            old = exactly(-torch.rand(4, 6) * 2 - 0.05)
            logprobs = exactly((old + torch.randn(4, 6) * spread).clamp(max=-1e-3)).requires_grad_(True)
            advantages = exactly(torch.randn(4, 1).expand(4, 6) * mask)
            config = ActorConfig(
                clip_ratio=0.2, clip_ratio_low=low, clip_ratio_high=high, global_batch_info={},
                clip_ratio_c=3.0 if name == "ppo" else 20.0,
            )
            loss, metrics = core[function](old, logprobs, advantages, mask, mode, config)
            loss.backward()
            losses.append({
                "name": f"{name}/{mode}/{i}", "surrogate": name, "aggregation": mode, "low": low, "high": high,
                "old": rows(old), "logprobs": rows(logprobs), "advantages": rows(advantages), "mask": rows(mask),
                "loss": float(loss), "gradient": logprobs.grad.tolist(), "clipped": float(metrics.get("actor/pg_clipfrac", 0)),
            })

gdpo = []
for weights in ([1.0, 1.0], [1.0, 0.5]):
    for std in (True, False):
        x, y = [[round(float(v), 4) for v in torch.rand(6) * scale] for scale in (1, 10)]
        mask = torch.ones(6, 4)
        attention = torch.cat([torch.ones(6, 2), mask], 1).long()
        settings = {"gdpo_reward_keys": ["x", "y"], "gdpo_reward_weights": weights}
        advantages, _ = core["compute_gdpo_outcome_advantage"](
            torch.zeros(6, 4), mask, np.array(list("aaabbb"), dtype=object), norm_adv_by_std_in_grpo=std,
            config=types.SimpleNamespace(get=lambda k, d=None: settings.get(k, d)), non_tensor_batch={"x": x, "y": y},
            batch={"prompts": torch.zeros(6, 2), "attention_mask": attention},
        )
        gdpo.append({"std": std, "weights": weights, "groups": list("aaabbb"), "x": x, "y": y, "advantages": advantages[:, 0].tolist()})

json.dump({"losses": losses, "gdpo": gdpo}, sys.stdout, separators=(",", ":"))
