"""What penstock.initialize() is told about the step."""
from __future__ import annotations

from dataclasses import dataclass

import torch

from .loss_scale import LossScale


@dataclass(frozen=True)
class Settings:
    """What a configuration says beside optimizer, scheduler and store."""

    accumulation: int = 1  # micro-batches of one step
    clip: float = 0.0  # largest global norm of the gradient; 0: none
    micro_batch: int | None = None  # rows; for the data loader
    drop_last: bool = False  # the data loader leaves out a last micro-batch with fewer rows
    dtype: torch.dtype | None = None  # what the model is made before it is managed; None: as it is
    loss_scale: LossScale | None = None  # of fp16
    steps_per_print: int | None = None  # steps from one line of progress to the next; None: steps are not told of
