"""deepspeed.runtime.lr_schedules: penstock.configuration.schedules by DeepSpeed's own signatures."""
from __future__ import annotations

from typing import Any

from ..configuration import schedules
from ..errors import UsageError

NEEDED = object()
WARM = {"warmup_min_lr": 0.0, "warmup_max_lr": None, "warmup_num_steps": 1000, "warmup_type": "log"}  # a group's own
DEFAULTS: dict[str, dict[str, Any]] = {
    "WarmupLR": WARM,
    "WarmupDecayLR": {"total_num_steps": NEEDED, **WARM, "warmup_max_lr": 0.001},
    "WarmupCosineLR": {"total_num_steps": NEEDED, "warmup_min_ratio": 0.0, "warmup_num_steps": 1000,
                       "cos_min_ratio": 0.0001, "warmup_type": "log"},
    "LRRangeTest": {"lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 2000, "lr_range_test_step_rate": 1.0,
                    "lr_range_test_staircase": False},
    "OneCycle": {"cycle_min_lr": NEEDED, "cycle_max_lr": NEEDED, "decay_lr_rate": 0.0, "cycle_first_step_size": 2000,
                 "cycle_second_step_size": None, "cycle_first_stair_count": 0, "cycle_second_stair_count": None,
                 "decay_step_size": 0, "cycle_momentum": True, "cycle_min_mom": 0.8, "cycle_max_mom": 0.9,
                 "decay_mom_rate": 0.0}}
VALID = sorted(DEFAULTS)


def _of(name: str) -> type:
    base: Any = schedules.SCHEDULES[name]
    defaults = DEFAULTS[name]

    def __init__(self: Any, optimizer: Any, *given: Any, last_batch_iteration: int = -1, **named: Any) -> None:
        said = {**dict(zip(defaults, given)), **named}
        unknown = said.keys() - defaults.keys()
        missing = [key for key, value in {**defaults, **said}.items() if value is NEEDED]
        if unknown or missing or len(given) > len(defaults):
            raise TypeError(f"{name}() takes {', '.join(defaults)}, and not {', '.join(sorted(unknown)) or 'less'}")
        if last_batch_iteration != -1:
            raise UsageError(f"{name}(last_batch_iteration={last_batch_iteration}): a schedule that goes on is loaded, "
                             "load_state_dict()")
        base.__init__(self, optimizer, **{**defaults, **said})
    return type(name, (base,), {"__init__": __init__, "__module__": __name__, "__doc__": base.__doc__})


WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle = (_of(each) for each in DEFAULTS)
