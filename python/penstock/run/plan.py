"""penstock.plan(): what a training is going to take, told before anything is made."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from .. import buffers
from ..config import read_config
from ..core import ModelSpec, UnitSpec
from ..initialize import check_model, mapped_optimizer, model_spec
from ..native.core import NativeCore
from ..optimizer_kind import check_cover
from ..settings import Settings
from ..store import Store
from ..units import units_of

NOWHERE = "."  # no directory is named, and none is looked at


@dataclass(frozen=True)
class Plan:
    """What the engine's core decides from the model and the settings, in bytes; an engine that is opened with them
    reports the same. `uses` is what the pool is divided into."""

    parameters: int
    trainable_parameters: int
    # Each tier.
    pool_bytes: int  # of host memory, pinned; torch's activations, buffers and the process itself are beside it
    device_bytes: int  # 0: compute reads the pool
    store_bytes: int  # of a new store, in all directories together
    directories: tuple[str, ...]  # none, where nobody has named them
    uses: Mapping[str, int]
    memory_table: str
    prefetch_depth: int  # visits ahead
    # NVMe traffic of one step.
    read_bytes: int
    write_bytes: int
    resident_write_bytes: int  # on top in a step that commits: what host memory holds
    commit_steps: int
    planned_bytes: float  # read and written, a mean over the steps of one commit

    def __str__(self) -> str:
        places = f" in {', '.join(self.directories)}" if self.directories else ""
        per = f", {self.planned_bytes / self.trainable_parameters:.1f} bytes per trainable parameter" \
            if self.trainable_parameters else ""
        later = f", and {amount(self.resident_write_bytes)} more in each that commits (every {self.commit_steps})" \
            if self.resident_write_bytes else ""
        return "\n".join((
            f"model     {self.parameters:,} parameters, {self.trainable_parameters:,} of them trainable",
            f"host      {amount(self.pool_bytes)} of pinned memory:", self.memory_table,
            *([f"device    {amount(self.device_bytes)} of its memory"] if self.device_bytes else []),
            f"NVMe      {amount(self.store_bytes)}{places}",
            f"prefetch  {self.prefetch_depth} visits ahead",
            f"a step    reads {amount(self.read_bytes)} and writes {amount(self.write_bytes)}{later}{per}"))

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return asdict(self)


def plan(model: nn.Module, config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
         store: Store | str | os.PathLike[str] | None = None, *, optimizer: torch.optim.Optimizer | None = None,
         model_parameters: Iterable[Any] | None = None, units: Sequence[str] = (), resident: Sequence[str] = (),
         settings: Settings | None = None) -> Plan:
    """What penstock.initialize() with the same arguments takes. Nothing is made, opened or changed; the model may be on
    meta, all of it. Raises FitError with the table where the pool does not fit into its budget or this machine, and
    what initialize() raises for arguments that cannot be. Whether there is room in the directories is looked at by
    initialize()."""
    read = None if config is None else read_config(config)
    settings = settings or (read.settings if read else Settings())
    place = read.store_at(store) if read else store
    check_model(model, may_be_meta=True)
    mapped = mapped_optimizer(optimizer, model_parameters, model, (read.optimizer if read else None)
                              or torch.optim.AdamW)
    check_cover(model, mapped)
    spec = model_spec(units_of(model, units, resident), mapped, _extra_of(model, settings.dtype))
    own = place if isinstance(place, Store) else Store(NOWHERE if place is None else place)
    told = NativeCore.plan(_as_type(spec, settings.dtype), own)
    beside = 0 if spec.extra is None else spec.extra.numel()  # bytes, which are no parameters
    return Plan(
        told.parameters - beside, told.trainable_parameters, told.pool_bytes, told.device_bytes, told.store_bytes,
        () if own.directories == NOWHERE else tuple(own.paths()),
        {each.name.decode(): each.bytes for each in told.uses[:told.use_count]}, told.memory_table.decode(),
        told.prefetch_depth, told.read_bytes, told.write_bytes, told.resident_write_bytes, own.commit_steps,
        told.planned_bytes)


def amount(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _as_type(spec: ModelSpec, dtype: torch.dtype | None) -> ModelSpec:
    """Of the model as initialize() makes it before it is managed."""
    if dtype is None:
        return spec
    return replace(spec, units=tuple(UnitSpec(unit.name, tuple(replace(each, dtype=dtype) for each in unit.parameters),
                                              unit.resident) for unit in spec.units))


def _extra_of(model: nn.Module, dtype: torch.dtype | None) -> torch.Tensor | None:
    """As long as what is kept beside the weights."""
    changed = [each.to("meta") for each in buffers.persistent(model).values()]
    if dtype is not None:
        changed = [each.to(dtype) if each.is_floating_point() or each.is_complex() else each for each in changed]
    count = sum(each.nbytes for each in changed)
    return torch.empty(count, dtype=torch.uint8, device="meta") if count > 0 else None
