"""DeepSpeed's schedulers as torch's: the same rates, step by step."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

Options = Mapping[str, Any]


class Schedule(LRScheduler):
    """DeepSpeed's scheduler stands at -1 before the first step and moves after each. `options` are the scheduler's
    params, all that it has."""

    def __init__(self, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        self.options = options
        super().__init__(optimizer)

    def rate(self, index: int, base: float) -> float:
        """Of DeepSpeed's step `index` (from -1), for a group whose own rate is `base`."""
        raise NotImplementedError

    def get_lr(self) -> list[float | torch.Tensor]:
        """Of each group, now."""
        return [self.rate(self.last_epoch - 1, float(base)) for base in self.base_lrs]


def warm_share(index: int, options: Options) -> float:
    warm = max(2, options["warmup_num_steps"])
    if options["warmup_type"] == "linear":
        return float(index / warm)
    return 1.0 / math.log(warm) * math.log(index + 1)


class WarmupLR(Schedule):
    """From warmup_min_lr to warmup_max_lr, and there it stays."""

    def after(self, index: int) -> float:
        """The share of warmup_max_lr behind the warm-up."""
        return 1.0

    def rate(self, index: int, base: float) -> float:
        least, most = self.options["warmup_min_lr"], self.options["warmup_max_lr"]
        most = base if most is None else most
        if index < 0:
            return float(least)
        warm = index < max(2, self.options["warmup_num_steps"])
        return float(least + (most - least) * (warm_share(index, self.options) if warm else self.after(index)))


class WarmupDecayLR(WarmupLR):
    """Then down to zero at total_num_steps."""

    def after(self, index: int) -> float:
        warm, total = max(2, self.options["warmup_num_steps"]), self.options["total_num_steps"]
        return max(0.0, float(total - index) / float(max(1.0, total - warm)))


class WarmupCosineLR(Schedule):
    """Shares of the group's own rate: up to all of it, then down by a cosine."""

    def rate(self, index: int, base: float) -> float:
        if index < 0:
            return 0.0
        warm, first, last = (max(2, self.options["warmup_num_steps"]), self.options["warmup_min_ratio"],
                             self.options["cos_min_ratio"])
        if index < warm:
            return float(base * (first + warm_share(index, self.options) * (1.0 - first)))
        progress = min(1.0, (index - warm + 1) / max(1, self.options["total_num_steps"] - warm))
        return float(base * max(0.0, last + (1.0 - last) * ((1 + math.cos(math.pi * progress)) / 2)))


class LRRangeTest(Schedule):
    """Up without end, to find the rate that is too much."""

    def rate(self, index: int, base: float) -> float:
        passed = float(index + 1) / self.options["lr_range_test_step_size"]
        if self.options["lr_range_test_staircase"]:
            passed = math.floor(passed)
        return float(self.options["lr_range_test_min_lr"] * (1 + self.options["lr_range_test_step_rate"] * passed))


class OneCycle(Schedule):
    """Cycles the first of an optimizer's betas too, the other way, and sets the second to 0.99, as DeepSpeed does."""

    def __init__(self, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        self.cycles_momentum = bool(options["cycle_momentum"]) and "betas" in optimizer.param_groups[0]
        super().__init__(optimizer, **options)

    def rate(self, index: int, base: float) -> float:
        least, most = self.options["cycle_min_lr"], self.options["cycle_max_lr"]
        if index < self._steps():
            return float(least + (most - least) * self._height(index))
        return float(least / self._decay(index, "decay_lr_rate"))

    def momentum(self, index: int) -> float:
        least, most = self.options["cycle_min_mom"], self.options["cycle_max_mom"]
        if index < 0:
            return float(least)
        if index < self._steps():
            return float(most - (most - least) * self._height(index))
        return float(most * self._decay(index, "decay_mom_rate"))

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        if self.cycles_momentum:
            for group in self.optimizer.param_groups:
                group["betas"] = (self.momentum(self.last_epoch - 1), 0.99)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.cycles_momentum:
            for group in self.optimizer.param_groups:
                group["betas"] = (self.momentum(self.last_epoch - 1), 0.99)

    def _halves(self) -> tuple[float, float]:
        first, second = self.options["cycle_first_step_size"], self.options["cycle_second_step_size"]
        return float(first), float(first if second is None else second)

    def _steps(self) -> float:
        return sum(self._halves())

    def _height(self, index: int) -> float:
        """Where between the cycle's ends it is: 0 at both, 1 in the middle."""
        (first, second), at = self._halves(), index + 1
        steps, turn = first + second, first / (first + second)
        x = 1.0 + at / steps - math.floor(1 + at / steps)
        rising = x <= turn
        stairs = self.options["cycle_first_stair_count"]
        if not rising and self.options["cycle_second_stair_count"] is not None:
            stairs = self.options["cycle_second_stair_count"]
        if stairs > 0:
            within = at % steps
            passed = within * stairs / first if within <= first else (steps - within) * stairs / second
            return float(math.floor(passed) / stairs)
        return float(x / turn if rising else (x - 1) / (turn - 1))

    def _decay(self, index: int, rate: str) -> float:
        interval = self.options["decay_step_size"]
        if math.isclose(interval, 0) or math.isclose(self.options[rate], 0):
            return 1.0
        return float(1 + self.options[rate] * ((index - self._steps() + 1) / interval))


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    each.__name__: each for each in (WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle)}
