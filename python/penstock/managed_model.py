"""A managed model: the module that was given, with its weights in a core's hands, and the calls by which they are read,
written and saved."""
from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .core import Core, PassKind, Visit, What
from .errors import ModelError, UsageError, some
from .files import export
from .files.description import Description, describe
from .machine.room import room_of
from .run.progress import Progress
from .run.stopwatch import Stopwatch
from .settings import Settings
from .step import saved_hooks
from .step.activations import Activations
from .step.copies import Copies
from .step.keeper import Keeper
from .step.model_state import ModelState
from .step.shelf import Shelf
from .step.unit_call import UnitCall, compiled_in_vain
from .step.visits import Visits, in_backward
from .units import Unit
from .weights import buffers, fast_paths
from .weights.binding import Binding


@dataclass(frozen=True)
class Listeners:
    """Who is told of a model's use, and answers."""

    called: Callable[[], None]  # its forward is
    backward: Callable[[], bool]  # one has come to a weight: whether a step begins within it


class ManagedModel(nn.Module):
    """What penstock.Engine is beside its optimizer. `module` is the model that was given."""

    def __init__(self, model: nn.Module, units: list[Unit], core: Core, settings: Settings, forward: Sequence[Visit],
                 progress: Progress, listeners: Listeners) -> None:
        """`forward`: the visits that the core was told to expect of one."""
        super().__init__()
        self.module, self.core, self.settings, self.progress = model, core, settings, progress
        self._watch, self._called = Stopwatch(core, settings.wall_clock_breakdown), listeners.called
        self.activations = Activations(
            settings.activations_of_all, settings.room or room_of(core.device), settings.graph_budget_bytes,
            settings.activations_of_units, Shelf(core) if core.lays else None, core.device, progress.note, progress.warn)
        self.binding = Binding(model, units, core, progress.note)
        self.visits = Visits(self.binding, forward, self._watch, self.activations.pass_ended, listeners.backward)
        Keeper(self.visits, weakref.ref(self))  # the parameters have it
        self._copies = Copies(model, self.binding, self.visits)
        self._state = ModelState(model, self.binding, self.visits)
        self.kept_buffers = buffers.Buffers(model)
        saved_hooks.watch(self.visits)
        fast_paths.install()
        _check_words(settings, units)
        self._compiled = compiled_in_vain(model, units)
        for unit in units:
            if unit.module is not None:
                call = UnitCall(unit, self.visits, self.activations)
                unit.module.__dict__.update(_compiled_call_impl=call, compile=call.compile)
        model.register_forward_pre_hook(self._model_is_called)
        model.register_forward_hook(self._model_was_called, always_call=True)
        self._copies.note_what_was_installed()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's."""
        return self.module(*args, **kwargs)

    # Weights, by the names of model.named_parameters().
    def weight(self, name: str, what: What = "weight") -> torch.Tensor:
        """A copy out of the store: the weight, or master, moment0, moment1, which are fp32."""
        parameter = self._named(name)
        self.visits.end()
        return self.binding.read(parameter, what)

    def set_weight(self, name: str, values: torch.Tensor, what: What = "weight") -> None:
        """Replaces weight and master: "weight" where the weight's bits differ, "master" where the master's do, which the
        weight is then a rounding of; or a moment. Durable with the next commit."""
        parameter = self._named(name)
        if values.shape != parameter.shape:
            raise UsageError(f"'{name}' has shape {tuple(parameter.shape)}, not {tuple(values.shape)}")
        self.visits.end()
        self.binding.write(parameter, values, what)

    def named_weights(self, what: What = "weight") -> Iterator[tuple[str, torch.Tensor]]:
        """All of them, one at a time in memory."""
        for parameter, name in self.binding.names.items():
            if what == "weight" or self.binding.learns(parameter):
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

    @functools.cached_property
    def description(self) -> Description:
        """What is said of the model beside its weights, for who has it not."""
        return describe(self.module, self.core.units, self.binding.places)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The model's, in ordinary memory; named_weights() streams instead."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """The model's; weights go to the store, one module at a time."""
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    # Weights as Hugging Face keeps them, one tensor at a time in memory.
    def save_pretrained(self, directory: str | os.PathLike[str], dtype: torch.dtype | None = None,
                        max_shard_bytes: float = 5e9, overwrite: bool = False) -> None:
        """A new directory as transformers' save_pretrained makes it, or none. `dtype`: None: as the model has it;
        torch.float32: the masters. `overwrite`: a directory of weights that is there is replaced once the new one is whole."""
        weights = export.ManagedWeights(self.binding, self.visits)
        export.save_directory(weights, directory, dtype, max_shard_bytes, overwrite)

    def save_16bit_model(self, directory: str | os.PathLike[str], filename: str | None = None) -> bool:
        """DeepSpeed's name: the weights, in the type in which the model computes, as one file of safetensors."""
        export.save_file(export.ManagedWeights(self.binding, self.visits), directory, filename)
        return True

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
        self._called()
        kind: PassKind = "training" if torch.is_grad_enabled() else "inference"
        if kind == "training" and not self.visits.open and not in_backward():
            self.visits.check()
            self.kept_buffers.refresh()
            self._watch.begin("forward")
        self.visits.begin(kind)

    @torch.compiler.disable
    def _model_was_called(self, *_: Any) -> None:
        self.visits.model_called()
        self._watch.end("forward")

    def _keep_changes(self) -> None:
        """Which were made in place between passes."""
        if self.visits.kind is None:
            self.binding.loans.settle()

    def _give_back(self, values: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """The model is an ordinary one, with these values, and nothing of ours is in it."""
        self._copies.take_away()
        self.binding.disown(values)
        self.visits.release()


def _check_words(settings: Settings, units: list[Unit]) -> None:
    names = [unit.name for unit in units if unit.module is not None]
    for pattern in settings.activations_of_units:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"Settings(activations={{'{pattern}': ...}}): no unit is named '{pattern}'; the units are "
                             f"{some(names)}")
