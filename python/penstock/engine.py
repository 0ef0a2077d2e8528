"""The engine: a managed model, its optimizer and the step, with the calls that DeepSpeed's users know."""
from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import buffers, checkpoint, saved_hooks
from .activations import Activations
from .binding import Binding
from .copies import Copies
from .core import Core, PassKind, UpdateReport, Visit, What
from .errors import ModelError, NoGradientError, UsageError, some
from .files import export
from .model_state import ModelState
from .optimizer import Optimizer
from .optimizer_kind import Mapped
from .outside import Outside
from .room import room_of
from .run.ending import Ending, Undisturbed
from .run.progress import Progress
from .settings import Settings
from .shelf import Shelf
from .unit_call import UnitCall, compiled_in_vain
from .units import Unit
from .visits import Visits, in_backward


class Engine(nn.Module):
    """Made by penstock.initialize(). `module` is the model that was given; it may be called by itself as well, and its
    optimizer stepped by itself. One caller at a time. What was done is committed when it is closed (`with engine:`
    does), when nothing refers to it any more, and when the interpreter ends, also after an interrupt."""

    def __init__(self, model: nn.Module, units: list[Unit], core: Core, mapped: Mapped, settings: Settings,
                 forward: Sequence[Visit] = (), progress: Progress | None = None) -> None:
        super().__init__()
        self.module, self.core, self.settings = model, core, settings
        self.visits = Visits(core, forward)
        self.outside = Outside(self.visits)
        self.binding = Binding(model, units, core, self.outside.read)
        self.visits.binding = self.binding
        self.binding.loans.between_passes = lambda: self.visits.kind is None
        copies = Copies(model, self.binding, self.visits)
        self.binding.also_check = self.outside.check
        self._state = ModelState(model, self.binding, self.visits)
        self.optimizer = Optimizer(mapped, core, self.visits, self.binding)
        self.optimizer.clip, self.optimizer.loss_scale = settings.clip, settings.loss_scale
        self.optimizer.client_state = self._client_state
        self.optimizer.extra = lambda: buffers.pack(self.module) if self.has_buffers else None
        self.lr_scheduler: Any = None
        self.micro_steps = 0
        self.has_buffers = buffers.size(model) > 0
        self.progress = progress or Progress(settings.steps_per_print)
        self.activations = Activations(
            settings.activations_of_all, settings.room or room_of(core.device), settings.graph_budget_bytes,
            settings.activations_of_units, Shelf(core) if core.lays else None, core.device, self.progress.note)
        self.visits.trained = self.activations.pass_ended
        saved_hooks.watch(self.visits)
        _check_words(settings, units)
        compiled = compiled_in_vain(model, units)
        for unit in units:
            if unit.module is not None:
                unit.module.__dict__["_compiled_call_impl"] = UnitCall(unit, self.visits, self.activations)
        model.register_forward_pre_hook(self._model_is_called)
        model.register_forward_hook(self._model_was_called, always_call=True)
        copies.note_what_was_installed()
        if core.resumed is not None:
            checkpoint.take_committed_state(self, core.resumed)
        self._ending = Ending(self, core, self._keep_changes)
        self.optimizer.told = self._tell
        self.visits.beginning = self._begin_step
        self.progress.begin(core, compiled)

    def use_scheduler(self, scheduler: Any) -> None:
        """It is stepped after each update and goes on where the store does."""
        self.lr_scheduler = scheduler
        if self.core.resumed is not None:
            checkpoint.take_committed_scheduler(self, self.core.resumed)

    # The three calls of a step.
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's."""
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> torch.Tensor:
        """Adds the gradient of a micro-batch's loss, which it divides by their number and scales itself."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise UsageError("engine.backward() takes a loss of one element, "
                             f"not {tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__}")
        scaled = loss / self.settings.accumulation if self.settings.accumulation > 1 else loss
        if self.optimizer.loss_scale is not None:
            scaled = scaled.float() * self.optimizer.loss_scale.value
        scaled.backward(retain_graph=retain_graph)
        self.progress.loss(loss)
        return loss

    def step(self) -> None:
        """Ends a micro-batch; with the last of an accumulation, updates, and tells the scheduler."""
        with Undisturbed():
            self._step()

    def _step(self) -> None:
        self.micro_steps += 1
        if self.micro_steps % self.settings.accumulation != 0:
            return
        if not self.binding.fed:
            self.micro_steps -= 1
            raise NoGradientError("engine.step(): no gradient has come since the last step; call engine.backward(loss) "
                                  "before it")
        report = self.optimizer.update()
        if self.lr_scheduler is not None and report.updated:
            self.lr_scheduler.step()

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next step() updates."""
        return (self.micro_steps + 1) % self.settings.accumulation == 0

    def gradient_accumulation_steps(self) -> int:
        """Micro-batches of one update."""
        return self.settings.accumulation

    def train_micro_batch_size_per_gpu(self) -> int | None:
        """Rows, where the configuration says so."""
        return self.settings.micro_batch

    @property
    def global_steps(self) -> int:
        """Updates of this model, over all its lives."""
        return self.optimizer.updates

    def get_global_grad_norm(self) -> float | None:
        """Of the last step, before clipping; None where nothing was clipped."""
        return None if self.optimizer.report is None else self.optimizer.report.gradient_norm

    def get_lr(self) -> list[float]:
        """Of each group, for the next update."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    # Weights, by the names of model.named_parameters().
    def weight(self, name: str, what: What = "weight") -> torch.Tensor:
        """A copy out of the store: the weight, or master, moment0, moment1, which are fp32."""
        parameter = self._named(name)
        self.visits.end()
        return self.binding.read(parameter, what)

    def set_weight(self, name: str, values: torch.Tensor) -> None:
        """Replaces weight and master; durable with the next commit."""
        parameter = self._named(name)
        if values.shape != parameter.shape:
            raise UsageError(f"'{name}' has shape {tuple(parameter.shape)}, not {tuple(values.shape)}")
        self.visits.end()
        self.binding.write(parameter, values)

    def named_weights(self, what: What = "weight") -> Iterator[tuple[str, torch.Tensor]]:
        """All of them, one at a time in memory."""
        for parameter, name in self.binding.names.items():
            if what == "weight" or parameter.requires_grad:
                yield name, self.weight(name, what)

    @contextlib.contextmanager
    def gathered(self, parameters: nn.Parameter | Iterable[nn.Parameter], modify: bool = False) -> Iterator[None]:
        """Their values are readable within; with `modify` what was changed goes to the store, without it is an error.
        No forward within."""
        listed = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
        for each in listed:
            if each not in self.binding.places:
                raise UsageError("engine.gathered(): a parameter is not of the managed model")
        self.visits.end()
        with self.binding.loans.gathered(listed, modify):
            yield

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The model's, in ordinary memory; named_weights() streams instead."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """The model's; weights go to the store, one module at a time."""
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    # Weights as Hugging Face keeps them, one tensor at a time in memory.
    def save_pretrained(self, directory: str | os.PathLike[str], dtype: torch.dtype | None = None,
                        max_shard_bytes: float = 5e9) -> None:
        """A new directory as transformers' save_pretrained makes it, or none. `dtype`: None: as the model has it;
        torch.float32: the masters."""
        export.save_directory(self, directory, dtype, max_shard_bytes)

    def save_16bit_model(self, directory: str | os.PathLike[str], filename: str | None = None) -> bool:
        """DeepSpeed's name: the weights, in the type in which the model computes, as one file of safetensors."""
        export.save_file(self, directory, filename)
        return True

    # Checkpoints.
    def save_checkpoint(self, directory: str | Path, tag: str | None = None,
                        client_state: Mapping[str, Any] | None = None) -> str:
        """DIRECTORY/TAG, whole and durable, with a snapshot of the store; its path. `tag` None: the step's number."""
        return checkpoint.save(self, Path(directory), tag, dict(client_state or {}))

    def load_checkpoint(self, directory: str | Path, tag: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """(None, {}) where there is none yet, as a program's first start finds it."""
        return checkpoint.load(self, Path(directory), tag)

    def close(self) -> None:
        """Commits what is not; the model's weights are in the store then, and its parameters stay released. A second
        time does nothing."""
        self.progress.end()
        try:
            if self._ending.to_come:
                self.visits.give_up()
        finally:
            self._ending.now()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise UsageError("an engine cannot be copied, because two never share a store; copy.deepcopy(engine.module) is "
                         "an ordinary model with these weights in memory")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError("an engine and its model cannot be pickled, because the weights are in the store: save "
                         "engine.state_dict(), or a copy, copy.deepcopy(engine.module)")

    # Private.
    def _named(self, name: str) -> nn.Parameter:
        if name not in self.binding.named:
            raise UsageError(f"the model has no parameter '{name}'; it has {some(self.binding.named)}")
        return self.binding.named[name]

    @torch.compiler.disable
    def _model_is_called(self, *_: Any) -> None:
        kind: PassKind = "training" if torch.is_grad_enabled() else "inference"
        if kind == "training" and not self.visits.open and not in_backward():
            self.binding.check()
        self.visits.begin(kind)

    @torch.compiler.disable
    def _model_was_called(self, *_: Any) -> None:
        self.visits.model_called()

    def _keep_changes(self) -> None:
        """Which were made in place between passes."""
        if self.visits.kind is None:
            self.binding.loans.settle()

    def _begin_step(self) -> bool:
        return self.is_gradient_accumulation_boundary() and self.optimizer.begin()

    def _client_state(self) -> Mapping[str, str]:
        return checkpoint.committed_state(self)

    def _tell(self, report: UpdateReport) -> None:
        self.progress.step(self.global_steps, report, self.get_lr()[0], self.optimizer.loss_scale, self.core)


def _check_words(settings: Settings, units: list[Unit]) -> None:
    names = [unit.name for unit in units if unit.module is not None]
    for pattern in settings.activations_of_units:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"Settings(activations={{'{pattern}': ...}}): no unit is named '{pattern}'; the units are "
                             f"{some(names)}")
