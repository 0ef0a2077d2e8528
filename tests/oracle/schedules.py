#!/usr/bin/env python3
"""The package's schedulers against DeepSpeed's own, step by step: rate and first beta.

  python -m venv V; V/bin/pip install torch deepspeed==0.19.8
  DS_ACCELERATOR=cpu V/bin/python tests/oracle/schedules.py [--write tests/oracle/schedules.golden]

Prints a table of the largest difference of each case, and fails where one is not 0. --write keeps DeepSpeed's numbers,
which python/tests/test_config_schedules.py compares with where DeepSpeed is not installed.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402
from deepspeed import __version__  # noqa: E402
from deepspeed.runtime import lr_schedules as theirs  # noqa: E402
from deepspeed.utils import logger  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from penstock.configuration.config import read_config  # noqa: E402

STEPS, RATE = 60, 0.01
CYCLE = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.02, "cycle_first_step_size": 13}
CASES = [
    ("warmup, log", "WarmupLR", {"warmup_num_steps": 10, "warmup_max_lr": 0.02}),
    ("warmup, linear, to the optimizer's rate", "WarmupLR", {"warmup_num_steps": 10, "warmup_type": "linear"}),
    ("warmup of one step", "WarmupLR", {"warmup_num_steps": 1, "warmup_min_lr": 0.001}),
    ("decay", "WarmupDecayLR", {"total_num_steps": 40, "warmup_num_steps": 7, "warmup_max_lr": 0.02,
                                "warmup_min_lr": 0.003}),
    ("decay, linear", "WarmupDecayLR", {"total_num_steps": 40, "warmup_num_steps": 7, "warmup_max_lr": 0.01,
                                        "warmup_type": "linear"}),
    ("cosine", "WarmupCosineLR", {"total_num_steps": 50, "warmup_num_steps": 9}),
    ("cosine, linear, with ends", "WarmupCosineLR", {"total_num_steps": 45, "warmup_num_steps": 9,
                                                     "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05,
                                                     "warmup_type": "linear"}),
    ("cosine shorter than its warm-up", "WarmupCosineLR", {"total_num_steps": 5, "warmup_num_steps": 9}),
    ("cycle", "OneCycle", CYCLE),
    ("cycle of unequal halves", "OneCycle", {**CYCLE, "cycle_second_step_size": 7}),
    ("cycle in stairs", "OneCycle", {**CYCLE, "cycle_first_stair_count": 4, "cycle_second_stair_count": 3}),
    ("cycle with decay", "OneCycle", {**CYCLE, "decay_step_size": 5, "decay_lr_rate": 0.1, "decay_mom_rate": 0.02,
                                      "cycle_min_mom": 0.7, "cycle_max_mom": 0.95}),
    ("cycle of the rate alone", "OneCycle", {**CYCLE, "cycle_momentum": False}),
    ("range test", "LRRangeTest", {"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 7}),
    ("range test in stairs", "LRRangeTest", {"lr_range_test_step_size": 7, "lr_range_test_step_rate": 0.5,
                                             "lr_range_test_staircase": True}),
]


def course(optimizer: torch.optim.Optimizer, scheduler: object) -> list[list[float | None]]:
    told = []
    for _ in range(STEPS):
        group = optimizer.param_groups[0]
        told.append([group["lr"], group["betas"][0] if "betas" in group else None])
        optimizer.step()
        scheduler.step()
    return told


def parameter() -> list[torch.Tensor]:
    return [torch.zeros(1, requires_grad=True)]


def deepspeed_course(kind: str, params: dict, optimizer: str) -> list[list[float | None]]:
    made = getattr(torch.optim, optimizer)(parameter(), lr=RATE)
    return course(made, getattr(theirs, kind)(made, **params))


def our_course(kind: str, params: dict, optimizer: str) -> list[list[float | None]]:
    config = read_config({"optimizer": {"type": optimizer, "params": {"lr": RATE}},
                          "scheduler": {"type": kind, "params": params}})
    made = config.optimizer(parameter())
    return course(made, config.scheduler(made))


def difference(one: list, other: list) -> float:
    return max(abs((a or 0) - (b or 0)) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--write", type=Path)
    chosen = arguments.parse_args()
    logger.setLevel(logging.ERROR)
    kept, worst = [], 0.0
    print(f"DeepSpeed {__version__}, {STEPS} steps\n")
    print("| case | scheduler | optimizer | largest difference |\n|---|---|---|---|")
    for name, kind, params in CASES:
        for optimizer in ("AdamW", "SGD"):
            reference = deepspeed_course(kind, params, optimizer)
            found = difference(reference, our_course(kind, params, optimizer))
            worst = max(worst, found)
            print(f"| {name} | {kind} | {optimizer} | {found:g} |")
            kept.append({"name": f"{name}, {optimizer}", "type": kind, "params": params, "optimizer": optimizer,
                         "course": reference})
    if chosen.write:
        rows = ",\n".join(json.dumps(each) for each in kept)
        chosen.write.write_text(f'{{"deepspeed": "{__version__}", "cases": [\n{rows}\n]}}\n')
    return 0 if worst == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
