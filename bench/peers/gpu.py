#!/usr/bin/env python3
"""Training steps on one GPU by Penstock, with states in host memory and on NVMe, and by others: torch with all in GPU memory,
FSDP2 and DeepSpeed with their offload.

  python3 bench/peers/gpu.py plan quick --dir /nvme/try --seconds 240 --out quick.jsonl   # or 3b, 7b; dry: on a CPU
  python3 bench/peers/gpu.py one penstock --shape 0.5b --tier nvme --order within --dir /nvme/try
  python3 bench/peers/gpu.py probe
  python3 bench/peers/gpu.py table quick.jsonl

Each run is a process of its own, at most so long; it leaves one line of JSON. `table` sets each beside `torch` and `compute` of
the same shape and tokens. All have the same random bf16 weights and the same tokens, transformers' Qwen2 with sdpa and its own
loss, AdamW without weight decay.

  compute       forward and backward alone: what an offload that costs nothing takes
  torch         bf16 weights, fp32 masters and moments, all in GPU memory
  penstock      --tier cpu: Store.in_memory(), or with --commit-steps a store that is kept; --tier nvme: all on NVMe
  fsdp_offload  fully_shard of each layer on one rank, CPUOffloadPolicy; fp32 in host memory, torch's fused AdamW there
  deepspeed     --tier cpu: stage 2, optimizer states in host memory; --tier nvme: stage 3, all on NVMe

`host_gib` is by how much the machine's memory in use has grown, for pinned memory is not in each process's own. MFU counts 6
FLOP for a parameter and token, none for what runs twice. No order of sums is asked of torch.
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

from fine_tune import SHAPES, place_of
from gpu_engines import ENGINES, GIB, NotHere, on_gpu, scratch_of, wait_for_gpu

BF16_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # of dense products
LEAST_SECONDS = 15  # with less time left no run is begun

# The seconds that a run may take, its engine and what it is told. What there is no time for is left out: the first matter most.
PLANS = {
    "quick": ["--shape 0.5b --rows 4 --tokens 4096 --micro-batches 2", [
        (25, "probe", ""),
        (40, "compute", ""),
        (40, "torch", ""),
        (45, "penstock", "--order within"),
        (45, "penstock", "--order deferred --clip 1"),
        (60, "penstock", "--order within --tier nvme"),
        (45, "fsdp_offload", ""),
        (60, "deepspeed", ""),
        (60, "penstock", "--order within --commit-steps 8"),
        (45, "penstock", "--order within --tokens 1024"),
        (45, "torch", "--tokens 1024"),
        (45, "penstock", "--order after_backward --clip 1"),
        (60, "deepspeed", "--tier nvme --steps 2")]],
    "3b": ["--shape 3b --rows 2 --tokens 4096 --micro-batches 4 --steps 3", [
        (60, "compute", ""),
        (60, "torch", ""),
        (90, "penstock", "--order within"),
        (90, "penstock", "--order deferred --clip 1"),
        (75, "fsdp_offload", ""),
        (90, "deepspeed", "")]],
    "7b": ["--shape 7b --rows 1 --tokens 4096 --micro-batches 8 --steps 3", [
        (75, "compute", ""),
        (150, "penstock", "--order within"),
        (150, "penstock", "--order deferred --clip 1")]],
    "dry": ["--shape tiny --rows 2 --tokens 64 --micro-batches 2 --steps 2", [
        (60, "probe", ""),
        (60, "compute", ""),
        (60, "torch", "--clip 1"),
        (60, "penstock", "--order within"),
        (60, "penstock", "--order deferred --clip 1"),
        (60, "penstock", "--order within --tier nvme"),
        (60, "penstock", "--order within --commit-steps 2"),
        (60, "fsdp_offload", ""),
        (90, "deepspeed", "")]],
}


# ---------------------------------------------------------------- a run

def digits(value: float) -> float:
    return float(f"{value:.4g}")


def memory_in_use() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in file}
    return 1024 * (kib["MemTotal"] - kib["MemAvailable"])


def run(options: SimpleNamespace) -> dict[str, Any]:
    """One line: figures, or why there are none."""
    import torch

    line: dict[str, Any] = {"run": options.name, "engine": options.engine, "shape": options.shape}
    before, begin = memory_in_use(), time.perf_counter()
    try:
        engine = ENGINES[options.engine](options)
        line["opened_s"] = digits(time.perf_counter() - begin)
        line.update(steps_of(engine, options, before))
    except (NotHere, ImportError) as problem:
        line["not_run"] = f"{type(problem).__name__}: {problem}"[:500]
    except Exception as problem:  # whatever a peer raises: the others are still to be run
        line["failed"] = f"{type(problem).__name__}: {problem}"[:1500]
    if on_gpu(options):
        line["gpu"] = torch.cuda.get_device_name()
        line["torch_gpu_gib"] = digits(torch.cuda.max_memory_reserved() / GIB)
    line["peak_rss_gib"] = digits(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB)
    return line


def steps_of(engine: Any, options: SimpleNamespace, memory_before: int) -> dict[str, Any]:
    import torch

    vocabulary = SHAPES[options.shape][5]
    generator = torch.Generator().manual_seed(7)
    batches = [torch.randint(0, vocabulary, (options.rows, options.tokens), generator=generator).to(place_of(options))
               for _ in range(4)]
    seconds: list[float] = []
    losses: list[float] = []
    most_memory, most_gpu = 0, 0
    for step in range(options.warm_up + options.steps):
        wait_for_gpu(options)
        begin = time.perf_counter()
        for index in range(options.micro_batches):
            last = index + 1 == options.micro_batches
            loss = engine.micro(batches[(step * options.micro_batches + index) % len(batches)], last)
        engine.step()
        wait_for_gpu(options)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
        most_memory = max(most_memory, memory_in_use() - memory_before)
        if on_gpu(options):
            free, total = torch.cuda.mem_get_info()
            most_gpu = max(most_gpu, total - free)
        if len(seconds) > options.warm_up and time.monotonic() + 1.5 * seconds[-1] > options.until:
            break  # fewer steps are better than none
    took = statistics.median(seconds[options.warm_up:])
    tokens = options.rows * options.tokens * options.micro_batches
    flops = 6 * engine.count * tokens / took
    peak = next((value for name, value in BF16_FLOPS.items() if on_gpu(options) and name in torch.cuda.get_device_name()), None)
    return {"parameters": engine.count, "tokens": tokens, "step_s": digits(took), "tokens_per_s": digits(tokens / took),
            "mfu": None if peak is None else digits(flops / peak), "host_gib": digits(most_memory / GIB),
            "gpu_gib": digits(most_gpu / GIB), "seconds": [digits(each) for each in seconds],
            "losses": [float(f"{each:.6g}") for each in losses], **engine.figures()}


# ---------------------------------------------------------------- what the machine gives

def rate(options: SimpleNamespace, amount: float, work: Any, seconds: float = 0.3) -> float:
    """`amount` per second in 10^9, by `work` again and again."""
    work()
    wait_for_gpu(options)
    turns, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        work()
        wait_for_gpu(options)
        turns += 1
    return digits(turns * amount / (time.perf_counter() - begin) / 1e9)


def probe(options: SimpleNamespace) -> dict[str, Any]:
    import torch

    numel = (64 if on_gpu(options) else 1) << 20
    states = [torch.ones(numel) for _ in range(4)]
    count = torch.ones(())

    def update() -> None:
        torch._fused_adamw_(*([each] for each in states), [], [count], lr=1e-6, beta1=0.9, beta2=0.999, weight_decay=0.0,
                            eps=1e-8, amsgrad=False, maximize=False)
    line = {"run": "probe", "cores": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__,
            "triad_gb_s": rate(options, 12 * numel, lambda: states[0].add_(states[1], alpha=0.5)),
            "adamw_gparameters_s": rate(options, numel, update)}
    if not on_gpu(options):
        return line
    pinned = [torch.ones(numel, pin_memory=True) for _ in range(2)]
    there = [torch.ones(numel, device=options.device) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def copy(ways: str) -> None:
        for way, stream, to, what in (("in", streams[0], there[0], pinned[0]), ("out", streams[1], pinned[1], there[1])):
            if way in ways.split():
                with torch.cuda.stream(stream):
                    to.copy_(what, non_blocking=True)
    for name, ways in (("host_to_gpu", "in"), ("gpu_to_host", "out"), ("each_of_both", "in out")):
        line[f"{name}_gb_s"] = rate(options, 4 * numel, lambda ways=ways: copy(ways))
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(8192, 8192, device=options.device, dtype=dtype)
        line[f"product_{str(dtype).split('.')[1]}_gflop_s"] = rate(options, 2 * 8192**3, lambda x=x: x @ x)
    return {"gpu": torch.cuda.get_device_name(), **line}


# ---------------------------------------------------------------- plans

def answer(options: SimpleNamespace, taken: Any) -> None:
    taken.send(probe(options) if options.engine == "probe" else run(options))
    sys.stdout.flush()
    os._exit(0)  # nobody wants what a close would still commit


def in_process(options: SimpleNamespace, seconds: float, start: str = "fork") -> dict[str, Any]:
    """Forked: torch and transformers are imported once, and no GPU is touched before. Where one was after all, spawned."""
    ways: Any = multiprocessing.get_context(start)
    begin = time.monotonic()
    options.until = begin + seconds - 8
    given, taken = ways.Pipe(duplex=False)
    child = ways.Process(target=answer, args=(options, taken))
    child.start()
    taken.close()
    line = {"run": options.name, "failed": f"no answer within {seconds:.0f} s"}
    if given.poll(seconds):
        try:
            line = given.recv()
        except EOFError:
            child.join(5)
            line["failed"] = f"the process ended with {child.exitcode}"
    child.kill()
    child.join()
    shutil.rmtree(scratch_of(options, child.pid), ignore_errors=True)
    if start == "fork" and "forked subprocess" in line.get("failed", ""):
        return in_process(options, seconds - (time.monotonic() - begin), "spawn")
    return line


def run_plan(options: SimpleNamespace) -> int:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # which leaves the GPU alone
    import torch  # noqa: F401
    import transformers.models.qwen2.modeling_qwen2  # noqa: F401

    common, runs = PLANS[options.plan]
    begin = time.monotonic()
    for most, engine, words in runs:
        seconds = min(most, options.seconds - (time.monotonic() - begin))
        name = " ".join([engine, *words.split()])
        if seconds < LEAST_SECONDS:
            say({"run": name, "not_run": "no time is left"}, options.out)
            continue
        one = parsed(["one", engine, *common.split(), *words.split(), "--device", options.device, "--dir", options.dir])
        one.name = name
        say(in_process(one, seconds), options.out)
    return 0


def say(line: dict[str, Any], out: str | None) -> None:
    print(json.dumps(line), flush=True)
    if out:
        with open(out, "a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


def table(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(each) for each in file]
    base = {(each["engine"], each["shape"], each["tokens"]): each["step_s"] for each in lines if "step_s" in each}
    rows = ["| run | tokens | s/step | ÷ torch | ÷ compute | MFU | GPU, host GiB | opened, s |", "|---|---|---|---|---|---|---|---|"]
    for each in lines:
        if "step_s" not in each:
            if "engine" in each or "not_run" in each or "failed" in each:
                rows.append(f"| {each['run']} | {each.get('not_run') or each.get('failed')} |")
            continue
        beside = []
        for engine in ("torch", "compute"):
            other = base.get((engine, each["shape"], each["tokens"]))
            beside.append("" if other is None else f"{other / each['step_s']:.3f}")
        rows.append(f"| {each['run']} | {each['tokens']} | {each['step_s']:.3f} | {beside[0]} | {beside[1]} | "
                    f"{each['mfu'] or ''} | {each['gpu_gib']:.1f}, {each['host_gib']:.1f} | {each['opened_s']:.1f} |")
    return "\n".join(rows)


# ---------------------------------------------------------------- words

def parsed(words: list[str]) -> SimpleNamespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("table", help="of a file of lines").add_argument("file")
    one = verbs.add_parser("one", help="one run")
    one.add_argument("engine", choices=[*ENGINES, "probe"])
    one.add_argument("--shape", choices=SHAPES, default="0.5b")
    one.add_argument("--rows", type=int, default=4, help="of a micro-batch")
    one.add_argument("--tokens", type=int, default=4096, help="of a row")
    one.add_argument("--micro-batches", type=int, default=2, help="of a step")
    one.add_argument("--warm-up", type=int, default=3, help="steps that are not counted")
    one.add_argument("--steps", type=int, default=5)
    one.add_argument("--rate", type=float, default=1e-5)
    one.add_argument("--clip", type=float, default=0.0)
    one.add_argument("--tier", choices=("cpu", "nvme"), default="cpu")
    one.add_argument("--order", choices=("after_backward", "deferred", "within"), default="after_backward")
    one.add_argument("--commit-steps", type=int, default=0, help="of states in host memory; 0: no step is committed")
    one.add_argument("--activations", choices=("recompute", "keep", "auto"), default="recompute", help="of Penstock")
    plan = verbs.add_parser("plan", help="several runs")
    plan.add_argument("plan", choices=PLANS)
    plan.add_argument("--seconds", type=float, default=240, help="for all of them")
    for verb in (one, plan, verbs.add_parser("probe", help="what the machine gives")):
        verb.add_argument("--device", default="cuda", help="cpu, emulated: without a GPU")
        verb.add_argument("--dir", default=tempfile.gettempdir(), help="on the NVMe")
        verb.add_argument("--out", help="a file that lines are added to")
    options = SimpleNamespace(**vars(parser.parse_args(words)))
    options.name = " ".join(words[1:words.index("--device")] if "--device" in words else words[1:])
    return options


def main(words: list[str]) -> int:
    options = parsed(words)
    if options.verb == "table":
        print(table(options.file))
        return 0
    os.makedirs(options.dir, exist_ok=True)
    if options.verb == "plan":
        return run_plan(options)
    options.engine = "probe" if options.verb == "probe" else options.engine
    say(in_process(options, 600), options.out)
    return 0


if __name__ == "__main__":
    if "GLIBC_TUNABLES" not in os.environ:  # what torch frees is kept, for every engine
        kept = ("hugetlb=1", "mmap_threshold=1073741824", "trim_threshold=1099511627776", "top_pad=67108864")
        tunables = ":".join(f"glibc.malloc.{each}" for each in kept)
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": tunables})
    sys.exit(main(sys.argv[1:]))
