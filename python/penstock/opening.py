"""penstock.initialize(): a model, an optimizer and a core become an engine."""
from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .checkpoints.going_on import first_state
from .checkpoints.kept_scheduler import adopt, check_given
from .configuration import deepspeed_calls
from .configuration.config import Config, read_config
from .core import BF16_ADDENDS, Core, ModelSpec, OpenCore, ParameterSpec, ReadWeight, UnitSpec, Visit, figures_of
from .engine import Engine
from .errors import FitError, ModelError, OptimizerError, UsageError, some
from .files import description, forwards
from .files.in_store import InStore, has_weights
from .files.incoming import Incoming
from .files.spill import first_value, to_type
from .given.argument_names import checks_names
from .monitors import Monitors
from .native import update_order
from .native.core import opens
from .optimizer import Optimizer
from .optimizers.kind import Mapped, check_cover, map_optimizer, map_parameters
from .run import placed
from .ranks.agreement import agree, values_of
from .ranks.cores import with_own_cores
from .ranks.gpus import take_turns
from .ranks.group import Group
from .ranks.training import go_on, group_of, make_alike, store_of_ranks
from .run.loader import ALONE, Loader, Loading
from .run.rows import Share
from .run.progress import LOGGER, Progress
from .settings import Settings
from .store import STORE_KEYS, Store, as_store
from .units import Unit, units_of
from .weights import buffers
from .weights.overlap import overlapping
from .weights.parameter import Managed

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
Initialized = tuple[Engine, Any, Loader | None, Any]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


@checks_names("penstock.initialize", Store, Settings)
def initialize(model: nn.Module, optimizer: torch.optim.Optimizer | MakeOptimizer | None = None,
               model_parameters: Iterable[Any] | None = None, training_data: Any = None, lr_scheduler: Any = None, *,
               store: Store | str | os.PathLike[str] | None = None, core: OpenCore | None = None,
               config: Mapping[str, Any] | str | os.PathLike[str] | None = None, units: Sequence[str] = (),
               resident: Sequence[str] = (), weights: str | os.PathLike[str] | None = None,
               settings: Settings | None = None, known: Mapping[str, Any] | None = None, ranks: Any = None,
               shuffle: bool = True, shuffle_seed: int = 0, num_workers: int = 0, pin_memory: bool = False,
               collate_fn: Callable[[list[Any]], Any] | None = None, args: Any = None,
               config_params: Mapping[str, Any] | str | os.PathLike[str] | None = None, mpu: Any = None,
               mesh_param: Any = None, dist_init_required: bool | None = None, distributed_port: int | None = None,
               restore_random: bool = True, trainable: Sequence[str] = (), engine_class: type[Engine] = Engine
               ) -> Initialized:
    """Gives (engine, optimizer, loader or None, scheduler or None). The model is managed from then on: its weights are
    the core's. A model of which no parameter requires a gradient is opened for forwards alone, see files/forwards.py,
    and its optimizer is None.

    model: The module, as it is.
    optimizer: One of torch's, or a function that makes one of `model_parameters`; None: the configuration's, else
        AdamW.
    model_parameters: What the optimizer is made of; None: all that are trainable.
    training_data: A data set. Each epoch is shuffled by `shuffle_seed` and the epoch's number, and its loader goes on
        where a resumed training does (run/loader.py).
    lr_scheduler: One of that optimizer (checkpoints/kept_scheduler.py), or a function that makes one of ours.
    store: Where the model is kept: a directory, or a Store; None: what the configuration says, else in host memory
        alone, Store.in_memory().
    core: Instead of `store`, a core of the caller's.
    config: DeepSpeed's JSON, a path or a mapping (configuration/config.py). Optimizer, scheduler and directories that
        are given beside it go before its own; a Store or Settings is merged with it.
    units: Names or classes of modules that are units whatever the rules say (units.py).
    resident: Patterns of units, or of parameters, that stay in memory.
    weights: A directory of Hugging Face's, from which each parameter of a new store is read when it is its turn; the
        model may be on meta.
    settings: Of the step.
    known: Values of keys that the configuration leaves to "auto", such as {"optimizer.params.lr": 2e-5}.
    ranks: None: processes that a launcher has started, or of which the program has made a default process group of
        torch.distributed, train one model, each with its rows (docs/ranks.md). All of them call this at once. False:
        each trains alone, in a directory of its own.
    shuffle: Of `training_data`.
    shuffle_seed: Of `training_data`.
    num_workers: Of `training_data`, as torch has it.
    pin_memory: Of `training_data`, as torch has it.
    collate_fn: Of `training_data`, as torch has it.
    args: DeepSpeed's: may name the configuration, as args.deepspeed_config.
    config_params: DeepSpeed's other name of `config`.
    mpu: DeepSpeed's: nothing in one process, or named in an error.
    mesh_param: As `mpu`.
    dist_init_required: As `mpu`.
    distributed_port: As `mpu`.
    restore_random: A store that goes on puts the random states back, as they were when its newest step ended; nothing
        is drawn or set later.
    trainable: Patterns of parameters' names that may become trainable later, by requires_grad_(). These have
        optimizer states and begin as they are, frozen or not.
    engine_class: What is made: penstock.Engine or a class of it.
    """
    deepspeed_calls.check_arguments(mpu, mesh_param, dist_init_required)
    config = deepspeed_calls.config_of(config, config_params, args)
    group = group_of(ranks, core is not None)
    read, settings = read_configuration(config, known, settings, optimizer, lr_scheduler,
                                        1 if group is None else group.ranks)
    given_scheduler, lr_scheduler = lr_scheduler, lr_scheduler or (read.scheduler if read else None)
    first = group is None or group.rank == 0  # of the processes: it speaks for all
    if read is not None:
        _tell(read.note(store) if first else None)
        store = read.store_at(store) if core is None else store
    monitors = read.monitors() if read is not None else Monitors()
    monitors.check()
    if isinstance(store, Store):
        update_order.check(store, settings)
    stored = weights is None and core is None and store is not None and bool(on_meta(model)) \
        and has_weights(as_store(store))
    check_model(model, may_be_meta=weights is not None or stored)
    loader = None if training_data is None else Loader(
        training_data, settings, Loading(shuffle, shuffle_seed, num_workers, pin_memory, collate_fn),
        ALONE if group is None else Share(group.rank, group.ranks))
    if settings.dtype is not None:
        to_type(model, settings.dtype)
    later = named_later(model, trainable)
    if forwards.nothing_to_train(model, later):
        if group is not None:
            raise UsageError(f"no parameter of the model requires a gradient, and forwards alone with {group.ranks} processes "
                             "come later: say penstock.initialize(ranks=False)")
        if optimizer is not None or given_scheduler is not None:  # those of a configuration are a student's, too
            raise OptimizerError("no parameter of the model requires a gradient: there is nothing to train, and it "
                                 "would be opened for forwards alone. Leave the optimizer and the scheduler out, or call "
                                 "requires_grad_() before, or say what is trained later: "
                                 "penstock.initialize(trainable=[...])")
        engine = open_for_forwards(model, store, core, units, resident, weights, settings, engine_class, stored)
        return engine, None, loader, None
    if store is None and core is None:
        store = in_memory(read)
        update_order.check(store, settings)
    mapped = mapped_optimizer(optimizer, model_parameters, model,
                              (read.optimizer if read else None) or torch.optim.AdamW, later)
    check_cover(model, mapped, later)
    _tell(mapped.note() if first else None)
    cut = units_of(model, units, resident)
    parameters = [[parameter for _, parameter in unit.own] for unit in cut if unit.index is not None]
    incoming = _incoming(model, weights, stored)
    if lr_scheduler is not None:
        check_given(lr_scheduler, mapped.groups)
    spec = model_spec(cut, mapped, buffers.Buffers(model).packed(), settings.accumulation, later,
                      clips=settings.clip > 0)
    read_first = first_value if incoming is None else incoming.value
    progress = Progress(settings.steps_per_print, silent=not first)
    if group is not None:
        store = store_of_ranks(as_store(store), group.ranks)  # type: ignore[arg-type]
        agree(group.gathered, values_of(store, settings, {} if loader is None else loader.alike()))
        take_turns(store, group)
        store = with_own_cores(store, group)
        if not go_on(store, group) and (changed := make_alike(model, group)):
            progress.warn(changed)
    with naming_nvme(store):
        opened = _opener(store, core, progress, group)(spec, lambda unit, index: read_first(parameters[unit][index]))
    if incoming is not None:
        incoming.make_parameters_real()
    buffers.move(model, opened.device)
    engine = engine_class(model, cut, opened, mapped, settings, spec.inference, progress)
    try:
        scheduler = None if lr_scheduler is None else adopt(lr_scheduler, engine.optimizer)
        engine.use_monitors(monitors)
        if group is not None:
            engine.use_group(group)
        if loader is not None:
            engine.use_loader(loader)
        engine.begin(scheduler, restore_random, "the store" if store is None else _first_directory(store))
        if core is None and store is not None:
            own = as_store(store)
            progress.note(placed.line(own, figures_of(opened)))
            if own.keep and first:
                description.write(engine.description, Path(own.paths()[0]))
    except BaseException:
        engine.close()
        raise
    chosen = isinstance(store, Store) and store.gradient_type is not None
    if chosen or settings.accumulation > BF16_ADDENDS:
        engine.binding.gradients.addends.take_any()
    return engine, engine.optimizer, loader, scheduler


def open_for_forwards(model: nn.Module, store: Store | str | os.PathLike[str] | None, core: OpenCore | None,
                      units: Sequence[str], resident: Sequence[str], weights: str | os.PathLike[str] | None,
                      settings: Settings, engine_class: type[Engine] = Engine, stored: bool = False) -> Engine:
    """See files/forwards.py. `stored`: the model is on meta, and the store has its weights."""
    found = forwards.find(store, core, weights is not None)
    cut = units_of(model, units, resident)
    parameters = [[parameter for _, parameter in unit.own] for unit in cut if unit.index is not None]
    incoming = _incoming(model, weights, stored)
    spec = forwards_spec(cut, model, found)
    given: ReadWeight = forwards.Weights(parameters, incoming) if isinstance(incoming, Incoming) \
        else lambda unit, index: first_value(parameters[unit][index])
    progress = Progress(settings.steps_per_print)
    opener = found.opener if not isinstance(found.opener, Store) else _opener(found.opener, None, progress)
    opened = opener(spec, given)
    if found.holds is not None and not stored:
        try:
            forwards.check_same(opened, given, found.holds)
        except BaseException:
            opened.close()
            raise
    if incoming is not None:
        incoming.make_parameters_real()
    buffers.move(model, opened.device)
    engine = engine_class(model, cut, opened, None, settings, spec.inference, progress)
    engine.keep_alive(given)
    engine.optimizer.go_on(found.step, skipped=0)
    if spec.extra is not None:
        engine.kept_buffers.unpack(opened.extra())
    if found.told:
        progress.note(found.told)
    return engine


def _incoming(model: nn.Module, weights: str | os.PathLike[str] | None, stored: bool) -> Incoming | InStore | None:
    """Where a model on meta gets its values from; its buffers have theirs then."""
    if not stored and weights is None:
        return None
    incoming = InStore(model) if stored else Incoming(model, weights)  # type: ignore[arg-type]
    incoming.make_buffers_real()
    return incoming


def forwards_spec(cut: list[Unit], model: nn.Module, found: forwards.Found = forwards.NOTHING) -> ModelSpec:
    return forwards.spec_of(cut, found, model, _visits_in_order_of_definition)


def read_configuration(config: Any, known: Mapping[str, Any] | None, settings: Settings | None, optimizer: Any,
                       lr_scheduler: Any, ranks: int = 1) -> tuple[Config | None, Settings]:
    """What a configuration says, and what it and `settings` say together."""
    if config is None:
        if known:
            raise UsageError("penstock.initialize(known=...) has values of what a configuration leaves to \"auto\", "
                             "and no config is given")
        return None, settings or Settings()
    own = [name for name, given in {"optimizer": optimizer, "scheduler": lr_scheduler}.items() if given is not None]
    read = read_config(config, known, own=own, ranks=ranks)
    return read, read.settings_with(settings)


def _tell(note: str | None) -> None:
    if note is not None:
        LOGGER.warning("%s", note)


def _opener(store: Store | str | os.PathLike[str] | None, core: OpenCore | None, progress: Progress,
            group: Group | None = None) -> OpenCore:
    if core is not None:
        if store is not None:
            raise UsageError("penstock.initialize(store=...): store and core were both given")
        return opens(core) if isinstance(core, Store) else core
    own = as_store(store)  # type: ignore[arg-type]
    return opens(own if own.progress is not None else replace(own, progress=progress.work),
                 None if group is None else group.struct)


def in_memory(read: Config | None) -> Store:
    """Where nobody names a directory. Raises UsageError where the configuration asks for NVMe."""
    if read is None:
        return Store.in_memory()
    asked = [key for key in (STORE_KEYS["weights"], STORE_KEYS["states"])
             if key in read.said and read.resolved["values"][key] == "nvme"]
    if asked:
        raise UsageError(f"{read.resolved['name']}: {some(asked)} is nvme, and nobody says where: name a directory, "
                         "penstock.initialize(store=...) or run.swap_directory")
    return read.store_at(Store.in_memory())  # type: ignore[return-value]


@contextlib.contextmanager
def naming_nvme(store: Store | str | os.PathLike[str] | None) -> Iterator[None]:
    """A FitError of a store in memory says what needs less."""
    try:
        yield
    except FitError as error:
        if isinstance(store, Store) and store.is_in_memory:
            raise FitError(f"{error}\nOr name a directory on NVMe, store=... (of `penstock plan` --store), which needs "
                           "memory for some units at a time.") from error
        raise


def on_meta(model: nn.Module) -> list[str]:
    """Parameters without values."""
    return [name for name, each in model.named_parameters() if each.is_meta] if isinstance(model, nn.Module) else []


def check_model(model: nn.Module, may_be_meta: bool) -> None:
    if not isinstance(model, nn.Module):
        raise UsageError(f"penstock.initialize(model=...): a torch.nn.Module, not {type(model).__name__}; what "
                         "DeepSpeed takes as its first argument goes by name: penstock.initialize(args=..., model=...)")
    named = dict(model.named_parameters())
    if not named:
        raise ModelError(f"{type(model).__name__} has no parameters: there is nothing to manage")
    if any(isinstance(each, Managed) for each in named.values()):
        raise ModelError("the model is managed by another engine already; make a new one for a second engine")
    lazy = [name for name, each in named.items() if isinstance(each, nn.UninitializedParameter)]
    if lazy:
        raise ModelError(f"parameters {some(lazy)} have no shape yet (lazy modules): call the model once before")
    meta = on_meta(model)
    if meta and not may_be_meta:
        raise ModelError(f"parameters {some(meta)} are on 'meta' and have no values: name the directory that has them, "
                         "penstock.initialize(weights=...), or a store that has trained them (store=...), or make the "
                         "model within penstock.zero.Init()")
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
                     make: Callable[[Any], torch.optim.Optimizer], later: Set[nn.Parameter] = frozenset()) -> Mapped:
    if optimizer is None:
        return map_parameters(parameters, model, make, later)
    if not isinstance(optimizer, torch.optim.Optimizer):
        if callable(optimizer):
            return map_parameters(parameters, model, optimizer)
        raise OptimizerError(f"optimizer: one of torch.optim, not {type(optimizer).__name__}")
    if parameters is not None:
        raise UsageError("optimizer and model_parameters were both given: the optimizer has its parameters; leave out "
                         "model_parameters")
    return map_optimizer(optimizer)


def named_later(model: nn.Module, patterns: Sequence[str]) -> Set[nn.Parameter]:
    """The parameters that may become trainable."""
    if isinstance(patterns, str):
        raise UsageError(f"trainable={patterns!r}: a list of patterns, [{patterns!r}]")
    named = dict(model.named_parameters(remove_duplicate=False))
    found: set[nn.Parameter] = set()
    for pattern in patterns:
        own = {each for name, each in named.items() if fnmatch.fnmatchcase(name, pattern)}
        if not own:
            raise UsageError(f"trainable: no parameter is named '{pattern}'; there are {some(named)}")
        found |= own
    return found


def model_spec(cut: list[Unit], mapped: Mapped, extra: torch.Tensor | None, micro_batches: int = 1,
               later: Set[nn.Parameter] = frozenset(), *, clips: bool = False) -> ModelSpec:
    group_of = mapped.group_of()
    specs = [UnitSpec(unit.name, tuple(
        ParameterSpec(name, tuple(each.shape), each.dtype, each.requires_grad or each in later, group_of.get(each, 0))
        for name, each in unit.own), unit.resident) for unit in cut if unit.index is not None]
    forward = _visits_in_order_of_definition(cut, specs)
    return ModelSpec(tuple(specs), mapped.kind.name, (*forward, *reversed(forward)), forward,
                     mapped.initial_accumulator, tuple(mapped.kind.values(group) for group in mapped.groups), extra,
                     micro_batches, first_state(), clips=clips)


def _visits_in_order_of_definition(cut: list[Unit], specs: list[UnitSpec]) -> tuple[Visit, ...]:
    """Which is the order of use in nearly all models; the first pass corrects it."""
    reads = [tuple(each for each in unit.reads if not specs[each].resident) for unit in cut if unit.module is not None]
    return tuple(each for each in reads if each)


def _first_directory(store: Store | str | os.PathLike[str]) -> str:
    return store.paths()[0] if isinstance(store, Store) else os.fspath(store)
