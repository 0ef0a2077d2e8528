#!/usr/bin/env python3
"""What the Python package costs beside the C++ engine: steps of one GPT, by turns, both over stores on NVMe.

  PYTHONPATH=python .peers/python/bin/python bench/peers/overhead.py --dir /nvme/try [--rounds 3] [--steps 20]

The shape is trainer/demo.json's with other layers; the model in Python makes the calls that trainer/models/gpt.cpp
makes. fp32, one commit per step, clipping at 1. Each round runs the program and the package once, each in a process of
its own; of each the median of its steps but the first three. Prints a line of JSON per round and one with the median
ratio, package / program; and the time of a bind and of a release of a unit's parameters."""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HIDDEN, HEADS, FEED_FORWARD, CONTEXT, ROWS, VOCABULARY = 512, 8, 2048, 256, 4, 256


def gpt(layers):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HIDDEN))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight

    def rotate(x):
        half = x.size(-1) // 2
        frequencies = torch.pow(10000, torch.arange(half, dtype=torch.float32) * (-1 / half))
        angles = torch.outer(torch.arange(x.size(-2), dtype=torch.float32), frequencies)
        cosine, sine = angles.cos(), angles.sin()
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def matrix(rows, columns, deviation=0.02):
        return nn.Parameter(torch.randn(rows, columns) * deviation)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            residual = 0.02 / math.sqrt(2 * layers)
            self.attention_norm, self.mlp_norm = Norm(), Norm()
            self.qkv, self.attention_out = matrix(3 * HIDDEN, HIDDEN), matrix(HIDDEN, HIDDEN, residual)
            self.mlp_in, self.mlp_out = matrix(FEED_FORWARD, HIDDEN), matrix(HIDDEN, FEED_FORWARD, residual)

        def forward(self, hidden):
            rows, columns, _ = hidden.shape
            split = F.linear(self.attention_norm(hidden), self.qkv)
            query, key, value = split.view(rows, columns, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = F.scaled_dot_product_attention(rotate(query), rotate(key), value, is_causal=True)
            attended = hidden + F.linear(mixed.transpose(1, 2).reshape(rows, columns, HIDDEN), self.attention_out)
            inner = F.gelu(F.linear(self.mlp_norm(attended), self.mlp_in), approximate="tanh")
            return attended + F.linear(inner, self.mlp_out)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.weight = Norm(), matrix(VOCABULARY, HIDDEN)

        def forward(self, hidden, targets):
            logits = F.linear(self.norm(hidden), self.weight)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = Head()

        def forward(self, tokens, targets):
            hidden = self.embedding(tokens)
            for block in self.blocks:
                hidden = block(hidden)
            return self.head(hidden, targets)

    return Gpt()


def package(options):
    """In a process of its own: prints its seconds per step, and those of a bind and a release."""
    import torch

    import penstock

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = gpt(options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.01)
    store = penstock.Store(os.path.join(options.dir, "package"), host_budget_bytes=options.budget,
                           tile_elements=262144, snapshots=False)
    engine, *_ = penstock.initialize(model, optimizer, store=store, settings=penstock.Settings(clip=1.0))
    seconds = []
    for _ in range(options.steps):
        tokens = torch.randint(0, VOCABULARY, (ROWS, CONTEXT + 1))
        begin = time.perf_counter()
        engine.backward(engine(tokens[:, :-1], tokens[:, 1:].contiguous()))
        engine.step()
        seconds.append(time.perf_counter() - begin)
    unit = max(range(len(engine.binding.parameters)), key=lambda each: len(engine.binding.parameters[each]))
    engine.core.begin_pass("inference")
    engine.core.visit((unit,))
    times = []
    for _ in range(1000):
        begin = time.perf_counter()
        engine.binding.bind(unit)
        middle = time.perf_counter()
        engine.binding.release(unit)
        times.append((middle - begin, time.perf_counter() - middle))
    engine.core.end_pass()
    print(json.dumps({"seconds": seconds, "parameters_of_unit": len(engine.binding.parameters[unit]),
                      "bind_us": statistics.median(each[0] for each in times) * 1e6,
                      "release_us": statistics.median(each[1] for each in times) * 1e6}))


def program(options):
    directory = os.path.join(options.dir, "program")
    shutil.rmtree(directory, ignore_errors=True)
    settings = {"model.layers": options.layers, "bf16.enabled": "false", "memory.host_budget": options.budget,
                "run.directory": directory, "zero_optimization.offload_param.nvme_path": directory + "/swap", "run.steps": options.steps,
                "run.threads": options.threads, "data.train": options.data, "run.sample.tokens": 0}
    command = [os.path.join(options.build, "penstock"), "train", os.path.join(ROOT, "trainer/demo.json"),
               *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    with open(os.path.join(directory, "log.jsonl"), encoding="utf-8") as log:
        return [ROWS * CONTEXT / json.loads(line)["tokens_per_s"] for line in log]


def median_of(seconds):
    return statistics.median(seconds[3:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", default=os.path.join(ROOT, ".demo/text.tokens"), help="./run demo makes it")
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=int, default=160 << 20)
    parser.add_argument("--package", action="store_true", help="only that, in this process")
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    if options.package:
        return package(options)
    ratios, found = [], {}
    for _ in range(options.rounds):
        one = median_of(program(options))
        shutil.rmtree(os.path.join(options.dir, "package"), ignore_errors=True)
        done = subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--package"],
                              capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
        if done.returncode != 0:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        other = median_of(found.pop("seconds"))
        ratios.append(other / one)
        print(json.dumps({"program_seconds": round(one, 4), "package_seconds": round(other, 4),
                          "ratio": round(ratios[-1], 4)}), flush=True)
    print(json.dumps({"median_ratio": round(statistics.median(ratios), 4), **found}))


if __name__ == "__main__":
    main()
