#!/usr/bin/env python3
"""One model trained by several processes of this machine, by Penstock and by its peers, by turns.

  bench/peers/venv.sh && .peers/deepspeed/bin/python -m pip install transformers==5.23.0     # once: .peers/deepspeed
  PYTHONPATH=python .peers/deepspeed/bin/python bench/peers/ranks.py --dir /nvme/try --turns 5
  PYTHONPATH=python .peers/deepspeed/bin/python bench/peers/ranks.py --dir /nvme/try --turns 5 --engines penstock --ranks 1 2

Engines: ddp is DistributedDataParallel with AdamW, everything in memory of each rank; deepspeed is stage 2 with optimizer
states in host memory (DeepSpeedCPUAdam); penstock has states in host memory, durable nowhere, and penstock-ranks-first too,
adding gradients over the ranks while backward runs, as stage 2 does; penstock-nvme has them in a store, each step committed. Same shape, weights, tokens and global batch (--rows), fp32, AdamW without weight decay,
clipping at 1, gloo, and the machine's cores divided among the ranks. A turn starts each engine anew, in another order.

Prints a line of JSON per start, and at the end one per engine and number of ranks: medians over the turns of tokens per
second, of the sum of the ranks' peak resident memory, and of bytes over the loopback device in a step; the ratio of
seconds to the first engine's in the same turn; and the last loss.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))
import fine_tune

ENGINES = ("ddp", "deepspeed", "penstock", "penstock-ranks-first", "penstock-nvme")
FIRST = 3  # steps that warm up


class Ddp:
    """Of one rank the model itself."""

    def __init__(self, model, options):
        import torch

        self.model = torch.nn.parallel.DistributedDataParallel(model) if options.count > 1 else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)

    def __call__(self, **batch):
        return self.model(**batch)

    def backward(self, loss):
        loss.backward()

    def step(self):
        import torch

        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def by_deepspeed(model, options):
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    config = {"train_micro_batch_size_per_gpu": options.rows // options.count, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
              "zero_force_ds_cpu_optimizer": False}
    optimizer = DeepSpeedCPUAdam(model.parameters(), lr=options.lr, weight_decay=0.0)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def by_penstock(model, options, store):
    import torch

    import penstock

    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    return penstock.initialize(model, optimizer, store=store, settings=penstock.Settings(clip=1.0, activations="keep"))[0]


def engine_of(name, model, options):
    if name == "ddp":
        return Ddp(model, options)
    if name == "deepspeed":
        return by_deepspeed(model, options)
    import penstock

    if name == "penstock":
        return by_penstock(model, options, penstock.Store.in_memory())
    if name == "penstock-ranks-first":
        return by_penstock(model, options, penstock.Store.in_memory(sum_order="ranks_first"))
    return by_penstock(model, options, penstock.Store(os.path.join(options.dir, "store"), keep=False))


def loopback_bytes():
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[0])
    return 0


def train(name, options):
    """One rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(options.threads)
    rank = int(os.environ["RANK"])
    if options.count > 1 or name == "deepspeed":
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(fine_tune.configuration(options.shape, options.tokens), dtype=torch.float32)
    model.train()
    engine = engine_of(name, model, options)
    own = options.rows // options.count
    seconds, loss = [], None
    wire = 0
    for step in range(FIRST + options.steps):
        if step == FIRST:
            wire = loopback_bytes()
        chance = torch.Generator().manual_seed(step)
        ids = torch.randint(0, fine_tune.SHAPES[options.shape][5], (options.rows, options.tokens), generator=chance)
        ids = ids[rank * own:(rank + 1) * own]
        begin = time.perf_counter()
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"rank": rank, "seconds": statistics.median(seconds[FIRST:]),
                      "wire": (loopback_bytes() - wire) / options.steps, "loss": loss.item(),
                      "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)
    if hasattr(engine, "close"):
        engine.close()
    os._exit(0)  # gloo's threads abort some processes at their end


def start(name, count, options):
    """All ranks of an engine; what they told together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = max(1, options.threads // count)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count),
                   "OMP_NUM_THREADS": str(threads), "DS_ACCELERATOR": "cpu", "USE_LIBUV": "0", "LOCAL_SIZE": str(count),
                   "GLIBC_TUNABLES": fine_tune.MEMORY}
    words = [sys.executable, __file__, "--rank-of", name, "--count", str(count), "--dir", options.dir, "--shape", options.shape,
             "--tokens", str(options.tokens), "--rows", str(options.rows), "--steps", str(options.steps), "--threads", str(threads)]
    ranks = [subprocess.Popen(words, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(count)]
    outputs = [each.communicate(timeout=900) for each in ranks]
    told = [json.loads(line) for out, _ in outputs for line in out.splitlines() if line.startswith('{"rank"')]
    if len(told) != count:
        raise SystemExit(f"{name} of {count} ranks ended with {[each.returncode for each in ranks]}:\n{outputs[0][1][-3000:]}")
    slowest = max(each["seconds"] for each in told)
    return {"engine": name, "ranks": count, "seconds": slowest, "tokens_per_s": options.rows * options.tokens / slowest,
            "rss": sum(each["rss"] for each in told), "wire": told[0]["wire"], "loss": sum(each["loss"] for each in told) / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2])
    parser.add_argument("--shape", choices=fine_tune.SHAPES, default="0.1b")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rows", type=int, default=4, help="of all ranks in a step")
    parser.add_argument("--steps", type=int, default=6, help=f"that are timed, behind {FIRST} that are not")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of all ranks together")
    parser.add_argument("--rank-of", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        train(options.rank_of, options)
    cells = [(name, count) for name in options.engines for count in options.ranks]
    turns: list[dict] = []
    for turn in range(options.turns):
        found = {}
        for cell in random.Random(turn).sample(cells, len(cells)):
            found[cell] = start(*cell, options)
            print(json.dumps({"turn": turn, **found[cell]}), flush=True)
        turns.append(found)
    for cell in cells:
        median = {key: statistics.median(turn[cell][key] for turn in turns) for key in ("seconds", "tokens_per_s", "rss", "wire")}
        ratio = statistics.median(turn[cell]["seconds"] / turn[cells[0]]["seconds"] for turn in turns)
        print(json.dumps({"engine": cell[0], "ranks": cell[1], **{key: round(value, 3) for key, value in median.items()},
                          "to_first": round(ratio, 3), "loss": turns[0][cell]["loss"]}), flush=True)


if __name__ == "__main__":
    main()
