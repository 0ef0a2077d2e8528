"""The command `ds_report`: what there is on this machine, for who asks DeepSpeed that."""
from __future__ import annotations

import platform

import torch

from .accelerator import get_accelerator
from .install import Environment, state
from .optimizers import COMPATIBLE_OPS
from .registered import VERSION


def main() -> int:
    """Prints it."""
    accelerator = get_accelerator()
    rows = {"deepspeed": f"{VERSION}: {state(Environment.of_this_python())}", "python": platform.python_version(),
            "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
            "accelerator": f"{accelerator.device_name()}, {accelerator.device_count()} of them",
            **{f"op {name}": "compatible" for name in COMPATIBLE_OPS}}
    for name, text in rows.items():
        print(f"{name:<18}{text}")
    return 0
