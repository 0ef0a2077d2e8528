#!/usr/bin/env python3
"""How long a step of other people's AdamW takes on this machine: torch's fused one and DeepSpeed's CPU Adam.

  bench/peers/venv.sh                                        # once: .peers/deepspeed
  .peers/deepspeed/bin/python bench/peers/optimizer.py --numel 16777216 --threads 1 --seconds 0.5
  build/release/penstock bench optimizer --peers .peers/deepspeed    # calls this in every round

One fp32 parameter of that many elements, fp32 gradient, both moments fp32: what `adamw` of the bench has. Memory is in
huge pages where the kernel gives them (THP_MEM_ALLOC_ENABLE), as the bench's own. Prints one JSON object:

  {"peers": [{"name": "torch 2.11.0 fused AdamW", "steps": 12, "seconds": 0.51}, ...], "notes": ["..."]}

A peer that is not installed, or does not work here, is left out with a note.
"""
import argparse
import json
import os
import sys
import time


def timed(step, seconds):
    """Steps for that long, after one that is not counted."""
    step()
    steps, begin = 0, time.perf_counter()
    while True:
        step()
        steps += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return {"steps": steps, "seconds": elapsed}


def parameter(torch, numel):
    made = torch.nn.Parameter(torch.full((numel,), 0.01, dtype=torch.float32))
    made.grad = torch.full((numel,), 0.01, dtype=torch.float32)
    return made


def torch_fused(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    optimizer = torch.optim.AdamW([parameter(torch, arguments.numel)], lr=1e-6, weight_decay=0.01, fused=True)
    return {"name": f"torch {torch.__version__.split('+')[0]} fused AdamW", **timed(optimizer.step, arguments.seconds)}


def deepspeed_adam(arguments):
    import torch
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    torch.set_num_threads(arguments.threads)
    optimizer = DeepSpeedCPUAdam([parameter(torch, arguments.numel)], lr=1e-6, weight_decay=0.01, adamw_mode=True)
    return {"name": f"DeepSpeed {deepspeed.__version__} CPU Adam", **timed(optimizer.step, arguments.seconds)}


def prepare_environment(threads):
    """All of it is read once, when torch is loaded."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["USE_LIBUV"] = "0"
    # What DeepSpeed compiles stays beside what it was compiled for; torch's build tools look for ninja on the PATH.
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(sys.prefix, "torch_extensions")
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--numel", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each peer, after one step that is not counted")
    arguments = parser.parse_args()
    prepare_environment(arguments.threads)
    # The peers and their compilers talk on standard output: that is for people.
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peers, notes = [], []
    for measure in (torch_fused, deepspeed_adam):
        try:
            peers.append(measure(arguments))
        except Exception as error:  # whatever is wrong with one peer, the others can be measured
            why = " ".join(str(error).split())[:300]
            notes.append(f"{measure.__name__} is left out: {type(error).__name__}: {why}")
    json.dump({"peers": peers, "notes": notes}, result)
    result.write("\n")
    result.close()


if __name__ == "__main__":
    main()
