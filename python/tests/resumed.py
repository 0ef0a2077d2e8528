"""A script of a user's that may be stopped anywhere: dropout, random data of three generators, a scheduler, checkpoints."""
from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.optim import lr_scheduler as torchs
from torch.optim.swa_utils import SWALR

import penstock
import small_models as small
from cores import WAYS, test_core
from penstock.configuration.schedules import SCHEDULES

Options = dict[str, Any]


class Warm:
    """A callable object, whose attributes LambdaLR saves."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, step: int) -> float:
        self.asked += 1
        return 1 / (1 + self.asked)


class Own:
    """A scheduler that knows no torch: it moves rate and decay, draws, and keeps what it saw."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.groups, self.seen, self.best = optimizer.param_groups, {0: (1.0, "first")}, math.inf

    def step(self, metric: float = 1.0) -> None:
        self.best = min(self.best, metric)
        self.seen[len(self.seen)] = (self.best, "later")
        for group in self.groups:
            group["turns"] = group.get("turns", 0) + 1  # a value that no script gives
            group["lr"] *= random.uniform(0.8, 1.0) - 0.01 * group["turns"]
            group["weight_decay"] += 0.01

    def state_dict(self) -> Options:
        return {"seen": self.seen, "best": self.best}

    def load_state_dict(self, state: Options) -> None:
        self.seen, self.best = state["seen"], state["best"]


class Derived(torchs.LRScheduler):
    """A subclass that keeps a function and a set."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.shrink, self.at = (lambda rate: rate * 0.7), {2, 4}
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [self.shrink(each) for each in rates] if self.last_epoch in self.at else rates


def sequence(optimizer: torch.optim.Optimizer) -> Any:
    parts = [torchs.LinearLR(optimizer, 0.3, total_iters=3), torchs.ExponentialLR(optimizer, 0.9),
             torchs.CosineAnnealingLR(optimizer, 4)]
    return torchs.SequentialLR(optimizer, parts, [2, 5])


def tensors_rate(optimizer: torch.optim.Optimizer) -> Any:
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    return torchs.ExponentialLR(optimizer, 0.9)


def chain(optimizer: torch.optim.Optimizer) -> Any:
    return torchs.ChainedScheduler([torchs.ConstantLR(optimizer, 0.5, 4), sequence(optimizer)])


def deepspeeds(name: str, **params: Any) -> Callable[[Any], Any]:
    every = {"cycle_second_step_size": None, "cycle_first_stair_count": 0, "cycle_second_stair_count": None,
             "decay_step_size": 0, "decay_lr_rate": 0.0, "decay_mom_rate": 0.0, "cycle_momentum": True,
             "cycle_min_mom": 0.8, "cycle_max_mom": 0.9, "warmup_type": "log", "warmup_min_lr": 0.0, "warmup_max_lr": 0.01}
    return lambda optimizer: SCHEDULES[name](optimizer, **{**every, **params})


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda optimizer: None,
    "multi_step": lambda optimizer: torchs.MultiStepLR(optimizer, [2, 4, 6], 0.5),
    "step": lambda optimizer: torchs.StepLR(optimizer, 2, 0.5),
    "lambda": lambda optimizer: torchs.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "lambda_object": lambda optimizer: torchs.LambdaLR(optimizer, Warm()),
    "multiplicative": lambda optimizer: torchs.MultiplicativeLR(optimizer, lambda step: 0.9),
    "numpys_rate": lambda optimizer: torchs.MultiplicativeLR(optimizer, lambda step: numpy.float32(0.9)),
    "tensors_rate": tensors_rate,
    "polynomial": lambda optimizer: torchs.PolynomialLR(optimizer, 8, 2.0),
    "cosine": lambda optimizer: torchs.CosineAnnealingLR(optimizer, 5),
    "restarts": lambda optimizer: torchs.CosineAnnealingWarmRestarts(optimizer, 2, 2),
    "one_cycle": lambda optimizer: torchs.OneCycleLR(optimizer, 0.05, total_steps=20),
    "cyclic": lambda optimizer: torchs.CyclicLR(optimizer, 0.001, 0.01, 2, scale_fn=lambda x: 0.8 ** x),
    "swa": lambda optimizer: SWALR(optimizer, 0.002, 3),
    "sequence": sequence,
    "chain": chain,
    "derived": Derived,
    "own": Own,
    "plateau": lambda optimizer: torchs.ReduceLROnPlateau(optimizer, patience=0, factor=0.5),
    "warmup": deepspeeds("WarmupLR", warmup_num_steps=4),
    "deepspeed_cycle": deepspeeds("OneCycle", cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=2),
}


def start(folder: Path, scheduler: str, order: str | None = None, settings: penstock.Settings = penstock.Settings(),
          store: Options | None = None, **options: Any) -> penstock.Engine:
    torch.manual_seed(5)
    random.seed(5)
    model = small.Stack(block=small.Normed if order is None else small.Block)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, foreach=False)
    where: Options = {"core": test_core(folder=folder)} if store is None else \
        {"store": penstock.Store(folder, **WAYS[order or "after_backward"], **store)}
    return penstock.initialize(model, optimizer, lr_scheduler=SCHEDULERS[scheduler](optimizer), settings=settings,
                               **where, **options)[0]


def losses_of(engine: penstock.Engine, until: int, with_metric: bool = False,
              behind: Callable[[penstock.Engine], None] = lambda _: None) -> list[float]:
    """By step, with data and dropout of whatever the generators give. `behind` each step something may be done."""
    out = []
    while engine.global_steps < until:
        accumulated = []
        for _ in range(engine.gradient_accumulation_steps()):
            ids = torch.randint(0, 11, (2, 5)) + random.randrange(2) * 0
            value = small.loss(engine, ids) * random.uniform(0.5, 1.0)
            if "numpy.random" in sys.modules:
                value = value * sys.modules["numpy.random"].uniform(0.5, 1.0)
            engine.backward(value)
            accumulated.append(value.item())
            boundary = engine.is_gradient_accumulation_boundary()
            engine.step(lr_kwargs={"metrics": value} if with_metric and boundary else None)
        out.append(sum(accumulated))
        behind(engine)
    return out


def end_of(engine: penstock.Engine) -> dict[str, torch.Tensor]:
    return {**engine.state_dict(), "rates": torch.tensor(engine.get_lr()), "drawn": torch.rand(2)}


def life(folder: Path, scheduler: str, order: str | None, accumulation: int, steps: int, commit_steps: int = 1,
         stops: bool = False) -> None:
    """One life of the script as a process, to its end: the losses by step that it came to are added to a file, and at the
    end there is a file of all that was trained. Each second step is the best one. `stops`: by signals, behind a step."""
    numpy.random.seed(5)
    torch.set_num_threads(1)
    store = None if order is None else {"commit_steps": commit_steps}
    clip = 1.0 if order in ("speculative", "balanced", "deferred") else 0.0
    engine = start(folder / "store", scheduler, order, penstock.Settings(accumulation, clip), store)
    if stops:
        engine.stop_on_signals()

    def note(engine: penstock.Engine) -> None:
        if engine.global_steps % 2 == 0:
            engine.save_checkpoint(folder / "checkpoints", "best", {"losses": losses[-1], "drawn": random.getstate()})
    losses: list[float] = [0.0]
    with (folder / "losses").open("a") as file:
        while engine.global_steps < steps:
            losses += losses_of(engine, engine.global_steps + 1, scheduler == "plateau", note)
            file.write(f"{engine.global_steps} {losses[-1].hex()}\n")
            file.flush()
    torch.save({name: each.clone() for name, each in end_of(engine).items()}, folder / "end.new")
    os.replace(folder / "end.new", folder / "end.pt")  # a kill leaves it whole, or none
    engine.close()
