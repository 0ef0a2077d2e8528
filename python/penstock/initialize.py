"""penstock.initialize(): a model, an optimizer and a core become an engine."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from . import buffers, update_order
from .config import read_config
from .core import ModelSpec, OpenCore, ParameterSpec, UnitSpec, Visit
from .engine import Engine
from .errors import ModelError, OptimizerError, UsageError, some
from .files.incoming import Incoming
from .optimizer import Optimizer
from .optimizer_kind import Mapped, check_cover, map_optimizer, map_parameters
from .overlap import overlapping
from .parameter import Managed
from .run.progress import Progress
from .settings import Settings
from .store import Store
from .units import Unit, units_of
from .zero.spill import first_value, to_type

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
Initialized = tuple[Engine, Optimizer, "DataLoader[Any] | None", Any]


def initialize(model: nn.Module, optimizer: torch.optim.Optimizer | None = None,
               model_parameters: Iterable[Any] | None = None, training_data: Any = None, lr_scheduler: Any = None, *,
               store: Store | str | os.PathLike[str] | None = None, core: OpenCore | None = None,
               config: Mapping[str, Any] | str | os.PathLike[str] | None = None, units: Sequence[str] = (),
               resident: Sequence[str] = (), weights: str | os.PathLike[str] | None = None,
               settings: Settings | None = None, collate_fn: Callable[[list[Any]], Any] | None = None) -> Initialized:
    """Gives (engine, optimizer, loader or None, scheduler or None). The model is managed from then on: its weights are
    the core's. `store`: where it is kept, a directory or a Store; instead, `core` is a core of the caller's.
    `optimizer` is one of torch's; None: AdamW of `model_parameters`, or of all that are trainable. `lr_scheduler` is
    one of that optimizer, or a function that makes one of ours. `units`, `resident`: see units.py. `weights`: a
    directory of Hugging Face's, from which each parameter of a new store is read when it is its turn; the model may be
    on meta. `config`: DeepSpeed's JSON, see config.py; what is given beside it goes before it."""
    read = None if config is None else read_config(config)
    settings = settings or (read.settings if read else Settings())
    lr_scheduler = lr_scheduler or (read.scheduler if read else None)
    if read is not None and core is None:
        store = read.store_at(store)
    if isinstance(store, Store):
        update_order.check(store, settings)
    check_model(model, may_be_meta=weights is not None)
    if settings.dtype is not None:
        to_type(model, settings.dtype)
    mapped = mapped_optimizer(optimizer, model_parameters, model,
                              (read.optimizer if read else None) or torch.optim.AdamW)
    check_cover(model, mapped)
    cut = units_of(model, units, resident)
    parameters = [[parameter for _, parameter in unit.own] for unit in cut if unit.index is not None]
    incoming = None if weights is None else Incoming(model, weights)
    if incoming is not None:
        incoming.make_buffers_real()
    spec = model_spec(cut, mapped, buffers.pack(model) if buffers.size(model) else None)
    read_first = first_value if incoming is None else incoming.value
    progress = Progress(settings.steps_per_print)
    opened = _opener(store, core, progress)(spec, lambda unit, index: read_first(parameters[unit][index]))
    if incoming is not None:
        incoming.make_parameters_real()
    buffers.move(model, opened.device)
    engine = Engine(model, cut, opened, mapped, settings, spec.inference, progress)
    scheduler = _scheduler(lr_scheduler, engine.optimizer)
    if scheduler is not None:
        engine.use_scheduler(scheduler)
    loader = None
    if training_data is not None:
        loader = DataLoader(training_data, batch_size=settings.micro_batch or 1, collate_fn=collate_fn,
                            drop_last=settings.drop_last)
    return engine, engine.optimizer, loader, scheduler


def _opener(store: Store | str | os.PathLike[str] | None, core: OpenCore | None, progress: Progress
            ) -> OpenCore:
    if (store is None) == (core is None):
        raise UsageError("penstock.initialize(store=...): name the directory on NVMe in which the model is kept" +
                         ("" if core is None else "; store and core were both given"))
    if core is not None:
        return core
    own = store if isinstance(store, Store) else Store(store)  # type: ignore[arg-type]
    return own if own.progress is not None else replace(own, progress=progress.work)


def check_model(model: nn.Module, may_be_meta: bool) -> None:
    if not isinstance(model, nn.Module):
        raise UsageError(f"penstock.initialize(model=...): a torch.nn.Module, not {type(model).__name__}")
    named = dict(model.named_parameters())
    if not named:
        raise ModelError(f"{type(model).__name__} has no parameters: there is nothing to manage")
    if any(isinstance(each, Managed) for each in named.values()):
        raise ModelError("the model is managed by another engine already; make a new one for a second engine")
    lazy = [name for name, each in named.items() if isinstance(each, nn.UninitializedParameter)]
    if lazy:
        raise ModelError(f"parameters {some(lazy)} have no shape yet (lazy modules): call the model once before")
    meta = [name for name, each in named.items() if each.is_meta]
    if meta and not may_be_meta:
        raise ModelError(f"parameters {some(meta)} are on 'meta' and have no values: name the directory that has them, "
                         "penstock.initialize(weights=...), or make the model within penstock.zero.Init()")
    other = [f"{name} ({each.dtype})" for name, each in named.items() if each.dtype not in FLOATS]
    if other:
        raise ModelError(f"parameters {some(other)} are of types that cannot be kept; there are "
                         "float32, bfloat16 and float16")
    empty = [name for name, each in named.items() if each.numel() == 0]
    if empty:
        raise ModelError(f"parameters {some(empty)} have no elements; remove them")
    for first, second in overlapping((*named.items(), *model.named_buffers())):
        if first in named or second in named:
            raise ModelError(f"'{first}' and '{second}' are views of one memory, and would go apart as soon as the "
                             "model is managed: to tie parameters make them one nn.Parameter (model.head.weight = "
                             "model.embedding.weight); else give each a memory of its own, p.data = p.data.clone()")


def mapped_optimizer(optimizer: Any, parameters: Iterable[Any] | None, model: nn.Module,
                     make: Callable[[Any], torch.optim.Optimizer]) -> Mapped:
    if optimizer is None:
        return map_parameters(parameters, model, make)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise OptimizerError(f"optimizer: one of torch.optim, not {type(optimizer).__name__}")
    if parameters is not None:
        raise UsageError("optimizer and model_parameters were both given: the optimizer has its parameters; leave out "
                         "model_parameters")
    return map_optimizer(optimizer)


def model_spec(cut: list[Unit], mapped: Mapped, extra: torch.Tensor | None) -> ModelSpec:
    group_of = mapped.group_of()
    specs = [UnitSpec(unit.name, tuple(
        ParameterSpec(name, tuple(each.shape), each.dtype, each.requires_grad, group_of.get(each, 0))
        for name, each in unit.own), unit.resident) for unit in cut if unit.index is not None]
    forward = _visits_in_order_of_definition(cut, specs)
    return ModelSpec(tuple(specs), mapped.kind.name, (*forward, *reversed(forward)), forward,
                     mapped.initial_accumulator, tuple(mapped.kind.values(group) for group in mapped.groups), extra)


def _visits_in_order_of_definition(cut: list[Unit], specs: list[UnitSpec]) -> tuple[Visit, ...]:
    """Which is the order of use in nearly all models; the first pass corrects it."""
    reads = [tuple(each for each in unit.reads if not specs[each].resident) for unit in cut if unit.module is not None]
    return tuple(each for each in reads if each)


def _scheduler(given: Any, optimizer: Optimizer) -> Any:
    """A scheduler made for the user's own optimizer goes on with ours: the groups are the same objects."""
    if given is None:
        return None
    if isinstance(given, (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)):
        given.optimizer = optimizer
        return given
    if callable(given):
        return given(optimizer)
    raise UsageError(f"lr_scheduler: a scheduler of torch or a function that makes one, not {type(given).__name__}")
