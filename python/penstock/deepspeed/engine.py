"""DeepSpeedEngine: penstock.Engine with DeepSpeed's calls, and its habits where they are other ones."""
from __future__ import annotations

import contextlib
import functools
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from . import comm, weights
from ..engine import Engine
from ..errors import UsageError
from ..files import export
from ..optimizer import Optimizer
from ..weights.read_only import read_only
from .configuration.answers import Answers
from .loaders import DeepSpeedDataLoader, RepeatingLoader
from .monitor import MonitorMaster
from .telling import LOGGER, log_dist_once

TIMERS = {"forward": "fwd", "backward": "bwd", "step": "step"}  # DeepSpeed's names


class Offloaded:
    """The module as TRL walks it, to look for what DeepSpeed has put on it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def named_parameters(self, *given: Any, **named: Any) -> Any:
        return self._module.named_parameters(*given, **named)

    def ds_external_parameters(self) -> tuple[Any, ...]:
        """There are none: they come by themselves."""
        return ()


class StoreOptimizer(Optimizer):
    """What programs ask of DeepSpeed's optimizers beside torch's calls."""

    forward_hooks: tuple[Any, ...] = ()  # of parameters' coming and going, which TRL takes off while it generates
    backward_hooks: tuple[Any, ...] = ()

    @functools.cached_property
    def module(self) -> Offloaded:
        """Of which they ask for hooks of DeepSpeed's."""
        return Offloaded(self._binding.model)

    @property
    def overflow(self) -> bool:
        """The newest step updated nothing."""
        return self.report is not None and not self.report.updated

    @property
    def cur_scale(self) -> float:
        return 1.0 if self.loss_scale is None else self.loss_scale.value

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """Of each group its masters in one row, read out of the store for each who asks."""
        return [read_only(torch.cat([self._binding.read(each, "master").flatten() for each in group["params"]]),
                          "say deepspeed.utils.safe_set_full_fp32_param(parameter, values)")
                for group in self.param_groups]

    single_partition_of_fp32_groups = fp32_partitioned_groups_flat

    @property
    def parameter_offload(self) -> StoreOptimizer:
        return self

    def _register_deepspeed_module(self, module: Any) -> None:
        """There are no hooks to put back."""

    _register_hooks_recursively = _register_deepspeed_module


class DeepSpeedEngine(Answers, Engine):
    """Made by deepspeed.initialize()."""

    optimizer_class = StoreOptimizer
    training_dataloader: Any = None
    _batches: Iterator[Any] | None = None  # of train_batch()

    def __getattr__(self, name: str) -> Any:
        """What an engine has not is its module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None or name.startswith("__") or not hasattr(module, name):
                raise
            return getattr(module, name)

    def answer_for(self, config: dict[str, Any], loader: Any) -> None:
        """What it was made with, by which it answers."""
        self.config, self.training_dataloader = config, loader

    # Batches.
    def train_batch_size(self) -> int:
        return self._rows_of_a_pass * self.settings.accumulation

    @property
    def _rows_of_a_pass(self) -> int:
        """Of all processes."""
        return (self.settings.micro_batch or 1) * self.world_size

    def get_batch_info(self) -> tuple[int, int, int]:
        return self.train_batch_size(), self.settings.micro_batch or 1, self.settings.accumulation

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """By another number of micro-batches."""
        rows = self._rows_of_a_pass
        if train_batch_size % rows != 0:
            of = "" if self.world_size == 1 else f" of {self.world_size} processes"
            raise UsageError(f"set_train_batch_size({train_batch_size}): no multiple of the micro-batch{of}, {rows} rows")
        if self.micro_steps != self.counted_from:
            raise UsageError("set_train_batch_size() within a step: call it behind the step() that updates")
        self.settings = replace(self.settings, accumulation=train_batch_size // rows)

    def deepspeed_io(self, dataset: Any, batch_size: int | None = None, route: str = "train", pin_memory: bool = True,
                     data_sampler: Any = None, collate_fn: Any = None, num_local_io_workers: int | None = None
                     ) -> DeepSpeedDataLoader:
        """A loader of the program's own; in order, unless `route` is "train". Of several processes each has rows of its
        own."""
        if data_sampler is None and route != "train":
            data_sampler = torch.utils.data.SequentialSampler(dataset) if self.world_size == 1 else \
                torch.utils.data.DistributedSampler(dataset, self.world_size, self.global_rank, shuffle=False)
        return DeepSpeedDataLoader(dataset, batch_size or self.settings.micro_batch or 1, collate_fn, data_sampler,
                                   self.local_rank, self.settings.drop_last, num_local_io_workers, pin_memory,
                                   data_parallel_world_size=self.world_size, data_parallel_rank=self.global_rank)

    # A step.
    _unsynced = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's; where the configuration's fp16 says auto_cast, floating-point arguments become fp16."""
        return super().forward(*self.cast(args), **self.cast(kwargs))

    def cast(self, given: Any) -> Any:
        """As fp16.auto_cast asks."""
        return _halved(given) if self.fp16_enabled() and self._section("fp16").get("auto_cast") else given

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True, **others: Any
                 ) -> torch.Tensor:
        """As Engine.backward(); it gives the micro-batch's share of the loss."""
        loss = super().backward(loss, retain_graph, scale_wrt_gas, **others)
        return self._share_of(loss) if scale_wrt_gas else loss

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """As backward() does, for a program that calls loss.backward() itself, until the next step()."""
        self.binding.gradients.expect_scaled()
        return self._scaled(self._share_of(loss))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Nothing: gradients go to other processes with the step. Refused where DeepSpeed refuses it."""
        if self.zero_optimization_partition_gradients():
            raise AssertionError(f"no_sync() goes with ZeRO stages 0 and 1; this is {self.zero_optimization_stage()}")
        self._unsynced = True
        try:
            yield
        finally:
            self._unsynced = False

    def step(self, lr_kwargs: Mapping[str, Any] | None = None) -> None:
        if self._unsynced:
            raise AssertionError("engine.step() within engine.no_sync()")
        if self.binding.gradients.unscaled and self.settings.accumulation > 1:
            raise UsageError("gradients have come by loss.backward(), which does not divide the loss by the "
                             f"{self.settings.accumulation} micro-batches of a step: say engine.backward(loss), or "
                             "engine.scale(loss).backward()")
        super().step(lr_kwargs)
        self.binding.gradients.expect_scaled(by_engine=False)

    def train_batch(self, data_iter: Iterator[Any] | None = None) -> torch.Tensor:
        """A whole step: gradient_accumulation_steps batches of `data_iter`, or of training_data. The model gives the
        loss, or something with one; the mean of them comes back."""
        batches = self._own_batches() if data_iter is None else data_iter
        total = torch.zeros(())
        for _ in range(self.settings.accumulation):
            loss = self._loss_of(next(batches))
            total = total + self.backward(loss).detach().float().cpu()
            self.step()
        return total

    def _own_batches(self) -> Iterator[Any]:
        """Of training_data, epoch after epoch."""
        if self.training_dataloader is None or len(self.training_dataloader) == 0:
            raise UsageError("train_batch() without batches: train_batch(iterator), or deepspeed.initialize("
                             "training_data=...) with at least one of them")
        if self._batches is None:
            self._batches = iter(RepeatingLoader(self.training_dataloader))
        return self._batches

    def eval_batch(self, data_iter: Iterator[Any]) -> torch.Tensor:
        """The loss of its next batch."""
        with torch.no_grad():
            return self._loss_of(next(data_iter))

    def _loss_of(self, batch: Any) -> torch.Tensor:
        if isinstance(batch, Mapping):
            given = self(**batch)
        else:
            given = self(*batch) if isinstance(batch, (list, tuple)) else self(batch)
        return given if isinstance(given, torch.Tensor) else given.loss

    # What came of it.
    @property
    def global_steps(self) -> int:
        """As there: with those that overflowed."""
        return self.optimizer.updates + self.optimizer.skipped

    @property
    def global_samples(self) -> int:
        return self.global_steps * self.train_batch_size()

    @property
    def loss_scale(self) -> float:
        scale: float = self.optimizer.cur_scale  # type: ignore[attr-defined]
        return scale

    @property
    def monitor(self) -> MonitorMaster:
        """For events of the program's own."""
        return MonitorMaster(self.monitors, are_open=True)

    def get_wall_clock_timers(self) -> dict[str, float]:
        """Milliseconds of the newest step's parts, with wall_clock_breakdown."""
        parts = self.record.parts if self.record is not None else {}
        return {TIMERS[name]: 1000 * part.seconds for name, part in parts.items()}

    def get_mom(self) -> list[Any]:
        return [group.get("momentum", group.get("betas")) for group in self.optimizer.param_groups]

    def get_type(self) -> list[Any]:
        return [group.get("type") for group in self.optimizer.param_groups]

    @property
    def data_parallel_group(self) -> Any:
        """All processes."""
        return comm.get_world_group()

    seq_data_parallel_group = dp_process_group = data_parallel_group

    # Weights and checkpoints.
    def module_state_dict(self, destination: Any = None, prefix: str = "", keep_vars: bool = False,
                          exclude_frozen_parameters: bool = False) -> Any:
        state = weights.consolidated(self.module, exclude_frozen_parameters)
        given = OrderedDict() if destination is None else destination
        given.update((f"{prefix}{name}", each) for name, each in state.items())
        return given

    def load_module_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True, **_: Any) -> None:
        self.load_state_dict(checkpoint.get("module", checkpoint), strict=strict)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> Any:
        return weights.consolidated(self.module, exclude_frozen_parameters)

    _consolidated_16bit_state_dict = _zero3_consolidated_16bit_state_dict

    def save_16bit_model(self, save_dir: str | os.PathLike[str],  # type: ignore[override]
                         save_filename: str = "pytorch_model.bin", exclude_frozen_parameters: bool = False) -> bool:
        """As torch saves it; a name that ends with .safetensors: as safetensors, with all weights. Of several processes the
        first writes."""
        if self.global_rank != 0:
            return True
        if save_filename.endswith(".safetensors") and not exclude_frozen_parameters:
            export.save_file(export.ManagedWeights(self.binding, self.visits), save_dir, save_filename)
            return True
        os.makedirs(save_dir, exist_ok=True)
        torch.save(weights.clone_tensors_for_torch_save(weights.consolidated(self.module, exclude_frozen_parameters)),
                   os.path.join(save_dir, save_filename))
        return True

    save_fp16_model = save_16bit_model

    def save_checkpoint(self, save_dir: Any, tag: Any = None,  # type: ignore[override]
                        client_state: Mapping[str, Any] | None = None, save_latest: bool = True,
                        exclude_frozen_parameters: bool = False, *,
                        client_sd: Mapping[str, Any] | None = None) -> bool:
        """As Engine.save_checkpoint(): one of that tag is replaced. `client_sd`: the older name of `client_state`.
        `exclude_frozen_parameters`, which Trainer asks for with adapters: they are in it nevertheless, which is said."""
        state = client_sd if client_state is None else client_state
        if exclude_frozen_parameters:
            log_dist_once("engine.save_checkpoint(exclude_frozen_parameters=True): the checkpoint is a snapshot of the "
                          "whole store, and has the frozen parameters, too")
        super().save_checkpoint(save_dir, None if tag is None else str(tag), state, save_latest)
        return True

    def load_checkpoint(self, load_dir: Any, tag: Any = None, load_module_strict: bool = True,  # type: ignore[override]
                        load_optimizer_states: bool = True, load_lr_scheduler_states: bool = True,
                        load_module_only: bool = False, custom_load_fn: Any = None) -> tuple[str | None, Any]:
        """(None, None) where there is none yet."""
        path, state = super().load_checkpoint(load_dir, None if tag is None else str(tag), load_module_strict,
                                              load_optimizer_states, load_lr_scheduler_states, load_module_only,
                                              custom_load_fn)
        if path is None:
            LOGGER.warning("%s has no checkpoint to go on from: there is no file 'latest'", load_dir)
            return None, None
        return path, state

    # The end, and what there is nothing to do for.
    def destroy(self) -> None:
        """The model is an ordinary one again, with its weights in memory."""
        if not self.visits.released:
            self.release()

    def compile(self, *_: Any, **__: Any) -> None:
        """Said once: units run as they are."""
        log_dist_once("engine.compile(): a managed model runs as it is; what is within its units may be compiled "
                      "before deepspeed.initialize()")

    @property
    def is_compiled(self) -> bool:
        return False

    def offload_states(self, *_: Any, **__: Any) -> None:
        """Nothing: what is offloaded is off the device between its uses."""

    reload_states = empty_partition_cache = offload_states


def _halved(given: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return given.half() if given.is_floating_point() else given
    if isinstance(given, (list, tuple)):
        return type(given)(_halved(each) for each in given)
    if isinstance(given, dict):
        return {key: _halved(each) for key, each in given.items()}
    return given
