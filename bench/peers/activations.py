#!/usr/bin/env python3
"""What keeping graphs costs and gains: steps of one model with activations kept, given up where memory is short, or
recomputed, and by torch alone, by turns.

  PYTHONPATH=python .peers/python/bin/python bench/peers/activations.py --dir /nvme/try --shape 0.5b --tokens 128
  PYTHONPATH=python .peers/python/bin/python bench/peers/activations.py --dir /nvme/try --shape small --tokens 16 --threads 1

Each engine has a process of its own, and one runs at a time: a turn is a step of each. The shape `small` is 48 blocks of
width 64 in fp32, where calls are all; the others are fine_tune.py's. The package has weights in host memory and optimizer
states on NVMe (`small`: in host memory), commits nothing meanwhile, and updates AdamW; so does torch, all in memory. Of
the engines, `once` has a store for one run, and `deepspeed` is the same by penstock.deepspeed. `--gib N` gives each
process a control group of so many GiB, where one can be made. Prints a line of JSON per engine: the medians of its turns,
as ratios to torch's of the same run, and its peak resident memory."""
import argparse
import atexit
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import fine_tune

SMALL = "small"
TORCH = "torch"
ONCE, SURFACE = "once", "deepspeed"  # a store for one run; the same by penstock.deepspeed
GROUPS = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}  # of both versions


def small_model():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width=64, heads=4):
            super().__init__()
            self.before, self.between, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

        def forward(self, x):
            query, key, value = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
            x = x + self.drop(self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(-2)))
            return x + self.drop(self.down(F.gelu(self.up(self.between(x)))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 4)
            self.blocks = nn.ModuleList(Block() for _ in range(48))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.last(x).square().mean()

    torch.manual_seed(0)
    return Model()


class Torch:
    """In memory; the calls of an engine."""

    def __init__(self, model):
        import torch

        self.module = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)

    def __call__(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def engine_of(options, name):
    import torch

    import penstock

    if name == TORCH:
        return Torch(small_model() if options.shape == SMALL else fine_tune.model_of(options))
    folder = os.path.join(options.dir, name)
    if name == SURFACE:
        return surface_of(options)
    if options.shape == SMALL:
        model = small_model()
    else:
        with penstock.zero.Init(options.dir):  # its weights are never all in memory
            model = fine_tune.model_of(options)
    store = penstock.Store(os.path.join(folder, "store"), weights="cpu", commit_steps=10**6, keep=name != ONCE,
                           states="cpu" if options.shape == SMALL else "nvme")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    engine, *_ = penstock.initialize(model, optimizer, store=store, settings=penstock.Settings(activations="auto" if name == ONCE else name))
    return engine


def surface_of(options):
    """The same by deepspeed.initialize(): all weights come and go, as with ONCE."""
    import penstock.deepspeed  # noqa: F401  before transformers
    import deepspeed

    model = small_model() if options.shape == SMALL else fine_tune.model_of(options)
    engine, *_ = deepspeed.initialize(model=model, config={
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})
    return engine


def work(options, name):
    """A process of one engine: a step for each line that comes."""
    import torch

    torch.set_num_threads(options.threads)
    engine = engine_of(options, name)
    if options.shape == SMALL:
        x = torch.randn(options.tokens // 16 or 1, min(options.tokens, 16), 64)
    else:
        engine.module.train()
        x = torch.randint(0, fine_tune.SHAPES[options.shape][5], (1, options.tokens))
    for _ in sys.stdin:
        begin = time.perf_counter()
        loss = engine(x) if options.shape == SMALL else engine(input_ids=x, labels=x, use_cache=False).loss
        forward = time.perf_counter()
        engine.backward(loss)
        del loss
        backward = time.perf_counter()
        engine.step()
        told = {"seconds": (forward - begin, backward - forward, time.perf_counter() - backward),
                "peak_rss_mib": fine_tune.peak_rss() >> 20}
        if name != TORCH:
            graphs = engine.activations
            told.update(graphs_mib=graphs.peak_bytes >> 20, calls=graphs.calls, given_up=graphs.given_up)
        print(json.dumps(told), flush=True)
    os._exit(0)  # nothing is committed


class Worker:
    """One engine's process, within a control group of `gib` where that is asked for."""

    def __init__(self, options, name):
        self.name, self.turns = name, []
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--worker", name]
        into = group_of(name, options.gib) if options.gib else None
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         preexec_fn=into, env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})

    def step(self, counts):
        """False: it is no more."""
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            told = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.ended = self._process.wait()
            return False
        if counts:
            self.turns.append(told)
        return True

    def end(self):
        self._process.stdin.close()
        self._process.wait()

    def median(self, parts=(0, 1, 2)):
        return statistics.median(sum(each["seconds"][part] for part in parts) for each in self.turns)


def group_of(name, gib):
    """Called in the child before it begins. Exits with a word where no group can be made."""
    root, limit = next((root, limit) for root, limit in GROUPS.items() if os.path.isdir(root))
    folder = os.path.join(root, f"penstock-{os.getpid()}-{name}")
    try:
        os.makedirs(folder)
        with open(os.path.join(folder, limit), "w") as file:
            file.write(str(int(gib * 2**30)))
    except OSError as error:
        sys.exit(f"skipped: no control group can be made here ({error})")
    atexit.register(os.rmdir, folder)

    def enter():
        with open(os.path.join(folder, "cgroup.procs"), "w") as members:
            members.write(str(os.getpid()))
    return enter


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--shape", choices=[SMALL, *fine_tune.SHAPES], default="0.5b")
    parser.add_argument("--tokens", type=int, default=128, help="of small: rows")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--after", type=int, default=10, help="steps before the first turn that counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--engines", default="torch,auto,keep,recompute", help="of these, in this order")
    parser.add_argument("--gib", type=float, help="of memory for each process")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.bf16, options.device = options.shape != SMALL, "cpu"
    if options.worker:
        return work(options, options.worker)
    names = options.engines.split(",")
    shutil.rmtree(options.dir, ignore_errors=True)
    for name in names:
        os.makedirs(os.path.join(options.dir, name))
    workers = [Worker(options, name) for name in names]
    ended = set()
    for turn in range(options.after + options.turns):
        for worker in workers:
            if worker not in ended and not worker.step(turn >= options.after):
                ended.add(worker)
                print(json.dumps({"engine": worker.name, "ended_by": worker.ended, "in_turn": turn}), flush=True)
    base = next((each for each in workers if each.name == TORCH and each.turns), None)
    for worker in workers:
        worker.end()
        if worker.turns:
            parts = [worker.median((part,)) for part in range(3)]
            told = {"engine": worker.name, "shape": options.shape, "tokens": options.tokens, "after": options.after,
                    "forward_s": round(parts[0], 4), "backward_s": round(parts[1], 4), "update_s": round(parts[2], 4),
                    **{key: value for key, value in worker.turns[-1].items() if key != "seconds"}}
            if base is not None:
                told["without_update_to_torch"] = round(worker.median((0, 1)) / base.median((0, 1)), 3)
                told["step_to_torch"] = round(worker.median() / base.median(), 3)
            print(json.dumps(told), flush=True)
    shutil.rmtree(options.dir, ignore_errors=True)


if __name__ == "__main__":
    main()
