"""penstock.plan(): what a training is going to take, told before anything is made."""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from ..core import ModelSpec, UnitSpec
from ..errors import UsageError
from ..files import forwards
from ..given.argument_names import checks_names
from ..native import update_order
from ..native.described import Compute, Described
from ..native.structs import uses_of
from ..opening import (MakeOptimizer, check_model, forwards_spec, in_memory, mapped_optimizer, model_spec, named_later,
                       naming_nvme, read_configuration)
from ..optimizers.kind import check_cover
from ..ranks.training import store_of_ranks
from ..settings import Settings
from ..store import Store, as_store
from ..units import units_of
from ..weights import buffers
from .forecast import Forecast, forecast_of, line, text_of_others
from .measured_compute import Loss, measure_compute, tokens_of
from .of_ranks import UNMEASURED, OfRanks, asked, checked

NOWHERE = "."  # no directory is named for forwards alone, and none is looked at


@dataclass(frozen=True)
class Plan:
    """What the engine's core decides from the model and the settings, in bytes; an engine that is opened with them
    reports the same. `uses` is what the pool is divided into. Of several ranks (plan(ranks=...)) all but `of_ranks` and
    numbers of parameters is of each."""

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
    # NVMe traffic of one step, all its micro-batches together.
    read_bytes: int
    write_bytes: int
    resident_write_bytes: int  # on top in a step that commits: what host memory holds
    commit_steps: int
    planned_bytes: float  # read and written, a mean over the steps of one commit
    forecast: Forecast | None = None  # how long that takes
    unmeasured: str = "its time is not known without a batch (plan(batch=...), --batch)"  # why
    tokens: int | None = None  # of a step, with a batch
    graph_bytes: int = 0  # that torch keeps from forward to backward, with a batch and activations "keep"
    of_ranks: OfRanks | None = None  # with plan(ranks=...)

    def __str__(self) -> str:
        return (self._bytes() + self._ranks() + self._times()).rstrip("\n")

    def _bytes(self) -> str:
        places = f" in {', '.join(self.directories)}" if self.directories else ""
        per = f", {self.planned_bytes / self.trainable_parameters:.1f} bytes per trainable parameter" \
            if self.trainable_parameters else ""
        later = f", and {amount(self.resident_write_bytes)} more in each that commits (every {self.commit_steps})" \
            if self.resident_write_bytes else ""
        device = line("device", f"{amount(self.device_bytes)} of its memory") if self.device_bytes else ""
        return "".join((
            line("model", f"{self.parameters:,} parameters, {self.trainable_parameters:,} of them trainable"),
            line("host", f"{amount(self.pool_bytes)} of pinned memory:"), self.memory_table.rstrip("\n"), "\n", device,
            line("graphs", f"{amount(self.graph_bytes)} are kept from forward to backward, beside the pool")
            if self.graph_bytes else "",
            line("NVMe", f"{amount(self.store_bytes)}{places}" if self.store_bytes
                 else "nothing: all is in host memory, and no step is committed"),
            line("prefetch", f"{self.prefetch_depth} visits ahead") if self.store_bytes else "",
            line("a step", f"reads {amount(self.read_bytes)} and writes {amount(self.write_bytes)}{later}{per}")
            if self.trainable_parameters else line("a forward", f"reads {amount(self.read_bytes)}")))

    def _ranks(self) -> str:
        if self.of_ranks is None:
            return ""
        return line("ranks", f"{self.of_ranks.ranks}, of which any takes what is above") + self.of_ranks.text

    def _times(self) -> str:
        if self.forecast is None:
            return line("step", self.unmeasured)
        if self.forecast.step is None:
            known = f"{self.forecast.nvme_s:.3f} s of NVMe and {self.forecast.update_s:.3f} s of updates, at least"
            return self.forecast.rates.text + line("step", f"{known}; {self.unmeasured}")
        return self.forecast.rates.text + self.forecast.step.text + text_of_others(self.forecast)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        told: dict[str, Any] = _without_texts(asdict(self))
        return told

    def json(self) -> str:
        """The same, on one line."""
        return json.dumps(self.to_dict())


@checks_names("penstock.plan", Store, Settings)
def plan(model: nn.Module, config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
         store: Store | str | os.PathLike[str] | None = None, *,
         optimizer: torch.optim.Optimizer | MakeOptimizer | None = None,
         model_parameters: Iterable[Any] | None = None, units: Sequence[str] = (), resident: Sequence[str] = (),
         settings: Settings | None = None, known: Mapping[str, Any] | None = None, batch: Any = None,
         loss: Loss | None = None, tokens: int | None = None, endurance_bytes: float = 0.0,
         seconds: float = 0.4, trainable: Sequence[str] = (), ranks: int = 1,
         ranks_per_node: int | None = None) -> Plan:
    """What penstock.initialize() with the same arguments takes. Nothing is made, opened or changed; the model may be on
    meta, all of it. Raises FitError with the table, and the lightest settings that fit, where the pool does not fit
    into its budget or this machine, and what initialize() raises for arguments that cannot be. Whether there is room
    in the directories is looked at by initialize().

    With a `batch`, also how long a step takes: a copy of the model without values is run with it, on this machine,
    units that are alike once or twice. Devices are measured in the store's directories, or where these are not there
    yet beside them, or of a store in memory where temporary files are, by a file of 256 MiB to 1 GiB without a name.
    Without a batch devices are measured where the directory is there, which says what the bytes of a step take. Raises
    ModelError where the model cannot be copied, or run with the batch. Of a model with nothing to train: what a store of its weights takes, and what a forward
    reads; times are not forecast.

    Arguments that are not named below are those of initialize().

    batch: An example of what the model's forward takes for one micro-batch: a mapping of names, a tuple, or one
        tensor.
    loss: Makes the loss of what the model gives; None: the model's own.
    tokens: Of the batch; None: elements of its first tensor of integers.
    endurance_bytes: That the devices together are rated to have written: says days until then.
    seconds: Of each measurement, of which there are some ten; 0: none is made.
    ranks: Processes that train one model (docs/ranks.md): what each of them takes, those of a machine together, and all,
        and what they send each other in a step. No times are forecast of more than one.
    ranks_per_node: Of them on one machine, which is like this one; None: all of them.
    """
    checked(ranks, ranks_per_node)
    read, settings = read_configuration(config, known, settings, optimizer, None, ranks)
    place = read.store_at(store) if read else store
    check_model(model, may_be_meta=True)
    later, cut = named_later(model, trainable), units_of(model, units, resident)
    if forwards.nothing_to_train(model, later):
        if ranks > 1:
            raise UsageError(f"no parameter of the model requires a gradient, and forwards alone with {ranks} processes "
                             "come later: say penstock.plan(ranks=1)")
        own = as_store(NOWHERE if place is None else place)
        return _plan_of_forwards(_as_type(forwards_spec(cut, model), settings.dtype), own)
    own = in_memory(read) if place is None else as_store(place)
    if ranks > 1:
        own = store_of_ranks(own, ranks)
    mapped = mapped_optimizer(optimizer, model_parameters, model, (read.optimizer if read else None)
                              or torch.optim.AdamW, later)
    check_cover(model, mapped, later)
    spec = _as_type(model_spec(cut, mapped, _extra_of(model, settings.dtype), settings.accumulation, later,
                               clips=settings.clip > 0), settings.dtype)
    described = Described(spec, own)
    with naming_nvme(own):
        told, of_ranks = asked(described, ranks, ranks_per_node, settings.accumulation)
    further = settings.accumulation - 1
    compute: Compute | None = None
    keeping: Compute | None = None
    why = UNMEASURED if ranks > 1 else _unmeasured(own, batch, seconds)
    if batch is not None and why is None:
        update_order.check(own, settings)
        each = tokens_of(batch) if tokens is None else tokens

        def computed(settings: Settings) -> Compute:
            measured = measure_compute(model, spec, described.sums_type(), settings, batch, loss, 5 * seconds, units,
                                       resident, own.activation_budget_bytes > 0, told.available_bytes - told.pool_bytes)
            return replace(measured, tokens=each and each * settings.accumulation, endurance_bytes=endurance_bytes)
        compute = computed(settings)
        if settings.activations_of_all == "recompute":
            keeping = computed(replace(settings, activations="keep"))
            if not 0 < keeping.graph_bytes <= told.available_bytes - told.pool_bytes:
                keeping = None
    forecast = None if why else forecast_of(spec, own, settings, seconds, compute, keeping)
    if compute is None and why is None:
        why = Plan.unmeasured
    beside = 0 if spec.extra is None else spec.extra.numel()  # bytes, which are no parameters
    return Plan(
        told.parameters - beside, told.trainable_parameters, told.pool_bytes, told.device_bytes, told.store_bytes,
        _places(own), uses_of(told), told.memory_table.decode(),
        told.prefetch_depth, told.read_bytes + further * told.further_read_bytes,
        told.write_bytes + further * told.further_write_bytes, told.resident_write_bytes if own.keep else 0, own.commit_steps,
        told.planned_bytes + further * (told.further_read_bytes + told.further_write_bytes), forecast, why or "", compute.tokens if compute else None,
        compute.graph_bytes if compute else 0, of_ranks)


def _plan_of_forwards(spec: ModelSpec, store: Store) -> Plan:
    told = Described(spec, store).plan()
    return Plan(told.parameters, 0, told.pool_bytes, told.device_bytes, told.store_bytes, _places(store), uses_of(told),
                told.memory_table.decode(), told.prefetch_depth, told.read_bytes, 0, 0, 0, told.planned_bytes,
                unmeasured="nothing of the model is trainable: it is opened for forwards alone, and makes none")


def _places(store: Store) -> tuple[str, ...]:
    return () if store.directories == NOWHERE or store.is_in_memory else tuple(store.paths())


def _unmeasured(store: Store, batch: Any, seconds: float) -> str | None:
    """Why nothing is measured."""
    if seconds < 0:
        raise UsageError(f"penstock.plan(seconds={seconds}): seconds of each measurement, or 0 for none")
    if store.device != "cpu":
        return "times of a device with memory of its own are not forecast"
    if seconds == 0:
        return "its time was not measured (seconds=0)"
    if batch is None and (store.is_in_memory or not all(map(os.path.isdir, store.paths()))):
        return Plan.unmeasured
    return None


def _without_texts(told: Any) -> Any:
    """What is for readers is left out."""
    if isinstance(told, Mapping):
        return {key: _without_texts(value) for key, value in told.items() if key != "text"}
    return [_without_texts(each) for each in told] if isinstance(told, (list, tuple)) else told


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
