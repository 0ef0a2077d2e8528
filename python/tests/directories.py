"""Directories of weights for tests, and the peak of memory of a function in a process of its own."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from penstock.files.safetensors_file import SafetensorsWriter, TensorInfo
from penstock.files.state_names import kept_names, state_of

HERE = Path(__file__).resolve().parent


def write_file(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with SafetensorsWriter(path, {name: TensorInfo(tuple(v.shape), v.dtype) for name, v in tensors.items()}) as file:
        for name, each in tensors.items():
            file.write(name, each)


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    state = state_of(model)
    return {name: state[name].detach().clone() for name in kept_names(model, state)}


def write_directory(path: Path, tensors: dict[str, torch.Tensor], shards: int = 1) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if shards == 1:
        write_file(path / "model.safetensors", tensors)
        return path
    names = list(tensors)
    weight_map = {}
    for at in range(shards):
        file = f"model-{at + 1:05d}-of-{shards:05d}.safetensors"
        write_file(path / file, {name: tensors[name] for name in names[at::shards]})
        weight_map.update(dict.fromkeys(names[at::shards], file))
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path


PEAK = """
import os, sys
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
def peak_of(function):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    out = function()
    print("PEAK", status("VmHWM") - before)
    return out
"""


def peak_bytes(code: str, *args: str) -> int:
    """`code` calls peak_of(function): by how many bytes the process grew within it, at most. What is
    loaded and mapped when it is called for the first time counts as well: call it once before."""
    paths = [os.environ.get("PENSTOCK_PACKAGE_AT", str(HERE.parent)), str(HERE)]
    done = subprocess.run([sys.executable, "-c", PEAK.format(paths=paths) + code, *args], capture_output=True,
                          text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"})
    assert done.returncode == 0, done.stderr[-3000:]
    return int(next(line for line in done.stdout.splitlines() if line.startswith("PEAK")).split()[1])
