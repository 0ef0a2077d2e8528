"""What penstock.initialize() is told about the step."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from .errors import UsageError
from .given.said import Said
from .loss_scale import LossScale

Word = Literal["auto", "keep", "recompute"]
WORDS = ("auto", "keep", "recompute")


@dataclass(frozen=True)
class Settings(Said):
    """What a configuration says beside optimizer, scheduler and store. Beside one, the two are merged as with Store.

    accumulation: Micro-batches of one step.
    clip: Largest global norm of the gradient; 0: none.
    micro_batch: Rows of a micro-batch, for the data loader; None: 1 row.
    drop_last: The data loader leaves out a last micro-batch with fewer rows.
    dtype: The model is made of this type before it is managed; None: as it is.
    loss_scale: Of fp16, a penstock.loss_scale.LossScale; None: losses are not scaled.
    steps_per_print: Steps from one line of progress to the next; None: steps are not told of.
    activations: What units computed in forward, to the same bits. "auto" keeps the graph of each call until backward,
        and gives whole calls up, the oldest first, when memory runs short: these are recomputed. "keep" gives none
        up, "recompute" all. A mapping of units' names (patterns will do) to these words says so for single units, and
        by "*" for all others.
    graph_budget_bytes: How much graphs may take; None: what the machine has.
    room: Asked for the bytes that are free now, in the place of the machine.
    wall_clock_breakdown: A line with the seconds of forward, backward and step, and the waits in each, where a line of
        progress is due; without `steps_per_print` for each step.
    """

    accumulation: int = 1
    clip: float = 0.0
    micro_batch: int | None = None
    drop_last: bool = False
    dtype: torch.dtype | None = None
    loss_scale: LossScale | None = None
    steps_per_print: int | None = None
    activations: Word | Mapping[str, Word] = "auto"
    graph_budget_bytes: int | None = None
    room: Callable[[], float] | None = None
    wall_clock_breakdown: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in (self.activations_of_all, *self.activations_of_units.values()):
            if word not in WORDS:
                raise UsageError(f"Settings(activations={self.activations!r}): there are 'auto', 'keep' and 'recompute'")
        if self.graph_budget_bytes is not None and self.graph_budget_bytes < 0:
            raise UsageError(f"Settings(graph_budget_bytes={self.graph_budget_bytes}): bytes; None: no limit")

    @property
    def activations_of_all(self) -> Word:
        """For units that no pattern is of."""
        return self.activations if isinstance(self.activations, str) else self.activations.get("*", "auto")

    @property
    def activations_of_units(self) -> Mapping[str, Word]:
        """By patterns of their names."""
        given = {} if isinstance(self.activations, str) else self.activations
        return {name: word for name, word in given.items() if name != "*"}
