"""What penstock.initialize() is told about the step."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from .errors import UsageError
from .loss_scale import LossScale
from .said import Said


@dataclass(frozen=True)
class Settings(Said):
    """What a configuration says beside optimizer, scheduler and store; beside one, the two are merged as with Store.
    `activations`, to the same bits: "recompute"
    runs each unit's forward again in backward; "keep" keeps the graphs of as many units as `graph_budget_bytes` has
    room for, those nearest to the loss first, and recomputes the others (None: keeps all)."""

    accumulation: int = 1  # micro-batches of one step
    clip: float = 0.0  # largest global norm of the gradient; 0: none
    micro_batch: int | None = None  # rows; for the data loader
    drop_last: bool = False  # the data loader leaves out a last micro-batch with fewer rows
    dtype: torch.dtype | None = None  # what the model is made before it is managed; None: as it is
    loss_scale: LossScale | None = None  # of fp16
    steps_per_print: int | None = None  # steps from one line of progress to the next; None: steps are not told of
    activations: Literal["recompute", "keep"] = "recompute"
    graph_budget_bytes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activations not in ("recompute", "keep"):
            raise UsageError(f"Settings(activations={self.activations!r}): there are 'recompute' and 'keep'")
        if self.graph_budget_bytes is not None and self.graph_budget_bytes < 0:
            raise UsageError(f"Settings(graph_budget_bytes={self.graph_budget_bytes}): bytes; None: no limit")
