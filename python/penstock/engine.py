"""The engine: a managed model, its optimizer and the step, with the calls that DeepSpeed's users know."""
from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import signal
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from .checkpoints import checkpoint
from .checkpoints.going_on import Script
from .checkpoints.kept_scheduler import KeptScheduler
from .configuration.deepspeed_calls import DeepSpeedsCalls
from .core import Core, PassKind, UpdateReport, Visit, What
from .errors import ModelError, NoGradientError, UsageError, some
from .files import export
from .files.description import Description, describe
from .machine.room import room_of
from .monitors import Monitors
from .monitors.events import events_of
from .optimizer import NothingToTrain, Optimizer
from .optimizers.kind import Mapped
from .run.ending import Ending, Undisturbed, settle
from .run.loader import Loader
from .run.progress import Progress
from .run.saving import Saving
from .run.step_record import StepMeter, StepRecord
from .run.stop_signals import SIGNALS, StopSignals
from .run.stopwatch import Stopwatch
from .settings import Settings
from .step import saved_hooks
from .step.activations import Activations
from .step.copies import Copies
from .step.model_state import ModelState
from .step.outside import Outside
from .step.shelf import Shelf
from .step.unit_call import UnitCall, compiled_in_vain
from .step.visits import Visits, in_backward
from .units import Unit
from .weights import buffers, fast_paths
from .weights.binding import Binding


class Engine(DeepSpeedsCalls):
    """Made by penstock.initialize(). `module` is the model that was given; it may be called by itself as well, and its
    optimizer stepped by itself. One caller at a time. What was done is committed when it is closed (`with engine:`
    does), when nothing refers to it any more, and when the interpreter ends, also after an interrupt."""

    optimizer_class: type[Optimizer] = Optimizer

    def __init__(self, model: nn.Module, units: list[Unit], core: Core, mapped: Mapped | None, settings: Settings,
                 forward: Sequence[Visit] = (), progress: Progress | None = None) -> None:
        super().__init__()
        self.module, self.core, self.settings = model, core, settings
        self.progress = progress or Progress(settings.steps_per_print)
        self._watch = Stopwatch(core, settings.wall_clock_breakdown)
        self._meter = StepMeter(core, self._watch)
        self.activations = Activations(
            settings.activations_of_all, settings.room or room_of(core.device), settings.graph_budget_bytes,
            settings.activations_of_units, Shelf(core) if core.lays else None, core.device, self.progress.note,
            self.progress.warn)
        self.visits = Visits(core, forward, self._watch, self.activations.pass_ended)
        self.outside = Outside(self.visits)
        self.binding = Binding(model, units, core, self.outside.read, self.progress.note)
        self.visits.binding = self.binding
        self.binding.loans.between_passes = lambda: self.visits.kind is None
        self.binding.loans.ends_pass = self.visits.end_if_idle
        self._copies = copies = Copies(model, self.binding, self.visits)
        self.binding.gradients.came = self.visits.gradient_came
        self.binding.also_check = self.outside.check
        self._state = ModelState(model, self.binding, self.visits)
        self.binding.engine = weakref.ref(self)
        self.kept_buffers = buffers.Buffers(model)
        self.saving = Saving(core)
        self.optimizer = NothingToTrain() if mapped is None else self.optimizer_class(
            mapped, core, self.visits, self.binding, self._watch, self.kept_buffers.packed, self.saving.finish)
        self.optimizer.clip, self.optimizer.loss_scale = settings.clip, settings.loss_scale
        self.optimizer.client_state = self._client_state
        self.lr_scheduler: Any = None
        self.scheduler: KeptScheduler | None = None  # the same one, as it is committed
        self.loader: Loader | None = None
        self.given: Any = None  # what a core reads weights from again and again; it is kept here
        self.micro_steps = 0
        self.counted_from = 0  # micro_steps, at the newest update
        self._boundary: bool | None = None  # what the program says of the next step(); None: it is counted
        self.monitors = Monitors()
        self.record: StepRecord | None = None  # of the newest step
        saved_hooks.watch(self.visits)
        fast_paths.install()
        _check_words(settings, units)
        compiled = compiled_in_vain(model, units)
        for unit in units:
            if unit.module is not None:
                call = UnitCall(unit, self.visits, self.activations)
                unit.module.__dict__.update(_compiled_call_impl=call, compile=call.compile)
        model.register_forward_pre_hook(self._model_is_called)
        model.register_forward_hook(self._model_was_called, always_call=True)
        copies.note_what_was_installed()
        if core.resumed is not None:
            checkpoint.take_committed_state(self, core.resumed)
        self.script = Script(self.optimizer.param_groups, settings)
        self._ending = Ending(self, core, self._keep_changes, self.saving)
        self.stop = StopSignals()
        weakref.finalize(self, self.stop.give_back)
        self.optimizer.told, self.optimizer.stepped = self._tell, self._after_step
        self.visits.beginning = self._begin_step
        self.progress.begin(core, compiled)
        self._meter.begin()

    def begin(self, scheduler: Any, restore_random: bool, where: str) -> None:
        """Called once. The scheduler is stepped after each update; it and the random states go on where the store does,
        which is told."""
        if scheduler is not None:
            self.lr_scheduler, self.scheduler = scheduler, KeptScheduler(scheduler, self.optimizer.param_groups)
            self.scheduler.check()
        self.script = Script(self.optimizer.param_groups, self.settings)
        if self.core.resumed is not None:
            self.progress.told(*checkpoint.go_on(self, self.core.resumed, restore_random, where))

    def use_loader(self, loader: Loader) -> None:
        """Its position is committed with each step, and it goes on where the store does."""
        self.loader = loader
        addends = self.binding.gradients.addends  # alone: a loader does not keep its engine
        loader.trained = lambda: addends.all
        position = (self.core.resumed or {}).get("loader")
        if position is not None:
            loader.go_to(position)

    # The three calls of a step.
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's."""
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True, *,
                 allreduce_gradients: bool = True, release_loss: bool = False) -> torch.Tensor:
        """Adds the gradient of a micro-batch's loss, which it divides by their number (`scale_wrt_gas` False: not) and
        scales itself. The others are DeepSpeed's, and nothing in one process."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise UsageError("engine.backward() takes a loss of one element, "
                             f"not {tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__}")
        scaled = self._scaled(self._share_of(loss) if scale_wrt_gas else loss)
        gradients = self.binding.gradients
        before, gradients.scales = gradients.scales, True
        try:
            with self._watch.timing("backward"):
                scaled.backward(retain_graph=retain_graph)
        finally:
            gradients.scales = before
        self._meter.loss(loss)
        return loss

    def step(self, lr_kwargs: Mapping[str, Any] | None = None) -> None:
        """Ends a micro-batch; with the last of an accumulation, updates, and steps the scheduler, with `lr_kwargs`. One
        that wants an argument, as ReduceLROnPlateau does, is stepped where there is one: by
        step(lr_kwargs={"metrics": loss}), or by the program."""
        updates = self.is_gradient_accumulation_boundary()
        if updates:
            self._expect_turn(lr_kwargs)
        with Undisturbed():
            self._step()
        if updates:
            self._after_step()

    def _expect_turn(self, lr_kwargs: Mapping[str, Any] | None) -> None:
        if self.scheduler is not None:
            self.scheduler.expect_turn(lr_kwargs)
        elif lr_kwargs:
            raise UsageError("engine.step(lr_kwargs=...) is for the scheduler, and none was given: "
                             "penstock.initialize(lr_scheduler=...)")

    def _step(self) -> None:
        self._check_trains()
        self.visits.check_there()
        updates = self.is_gradient_accumulation_boundary()
        self.micro_steps += 1
        if not updates:
            return
        try:
            if not self.binding.gradients.fed:
                raise NoGradientError("engine.step(): no gradient has come since the last step; call "
                                      "engine.backward(loss) before it")
            self.binding.gradients.steps_alone = False
            report = self.optimizer.update()
        except UsageError:  # nothing has changed
            self.micro_steps -= 1
            raise
        self.counted_from = self.micro_steps
        if self.scheduler is not None and report.updated:
            self.scheduler.take_turn()
        self._write_events()

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next step() updates."""
        if self._boundary is not None:
            return self._boundary
        return (self.micro_steps + 1 - self.counted_from) % self.settings.accumulation == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool | None) -> None:
        """Whether step() updates is what the program says, call by call, until it says None: then micro-batches are
        counted again, from the newest update on. The loss is divided by gradient_accumulation_steps as ever. REQUIRES:
        said before the backward whose gradients the update takes, where units are updated within backward."""
        self._boundary = is_boundary

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
        """Of the last step that updated, before clipping; None where nothing was clipped, and before the first."""
        return self.optimizer.norm

    @property
    def skipped_steps(self) -> int:
        """Steps in fp16 whose gradients overflowed, over all lives of this model: they updated nothing, and none of
        them is one of global_steps."""
        return self.optimizer.skipped

    def get_lr(self) -> list[float]:
        """Of each group, for the next update."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    # A stop that can be gone on from.
    def stop_on_signals(self, *signals: int) -> None:
        """From now on the first of these signals ends the process behind the step that is under way. The step is
        committed, whatever commit_steps and update_order say; the step() that made it raises SystemExit(75), so that
        `finally` and `with` are gone through and other engines commit theirs. The same command, run again, goes on to
        the same bits. A second signal ends the process at once. One behind the last step changes nothing.

        `signals`: SIGINT, SIGTERM and SIGHUP, if none is named. What is ignored stays ignored (nohup). A handler of the
        program's is a UsageError that names it, and nothing is taken. close() gives them back. Called in the main
        thread; where steps are made in another one, both end. Of several engines it is said of one, whose step is the
        last of the loop's turn. Of a store for one run, Store(keep=False), there is nothing to go on from: the exit
        code is 128 and the signal. Forked workers pass over the first Ctrl-C, which a terminal sends to them, too. With
        transformers' Trainer and KeepSnapshots, as offload() adds it, a checkpoint is saved, and train() ends."""
        self._check_trains()
        if not self._ending.to_come:
            raise UsageError("engine.stop_on_signals() after engine.close(): there are no steps any more")
        self.stop.take(signals or SIGNALS)

    def stop_after_step(self, by: int = signal.SIGTERM) -> None:
        """What the first of stop_on_signals() does, for a handler of the program's own, or a condition of its own."""
        self._check_trains()
        self.stop.ask(by)

    def end_stopped(self, checkpoint: str | None = None) -> NoReturn:
        """The end itself, for those who took it over (stop.left_to_caller): commits, and raises SystemExit. `checkpoint`: has
        this step, and is what a store for one run is gone on from."""
        settle(self.core)
        self.stop.end(self.global_steps, self.core.kept, checkpoint)

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

    # Optimizer states as torch has them.
    def import_states(self, states: torch.optim.Optimizer | Mapping[str, Any]) -> None:
        """Moments and count of steps (SGD has none: 1, where it has a momentum) of an optimizer of torch's that has
        trained this model, or its state_dict(): of the same kind. Durable with the next commit. OptimizerError or
        UsageError, and nothing has happened, where they do not fit."""
        self._check_trains()
        if isinstance(states, torch.optim.Optimizer):
            self.optimizer.take_states(states)
        else:
            self.optimizer.load_state_dict(dict(states))

    def export_states(self) -> dict[str, Any]:
        """A state_dict() that the same optimizer of torch's loads, in ordinary memory."""
        self._check_trains()
        return self.optimizer.plain_state()

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

    # Checkpoints.
    def save_checkpoint(self, directory: str | Path, tag: str | int | None = None,
                        client_state: Mapping[str, Any] | None = None, save_latest: bool = True,
                        exclude_frozen_parameters: bool = False, *, overwrite: bool = True, wait: bool = True) -> str:
        """DIRECTORY/TAG, whole and durable, with a snapshot of the store; its path. `tag` None: global_stepN. One
        that is there already is replaced when the new one is whole, unless `overwrite` is False. `client_state`: what
        checkpoints/client_values.py has kinds for; else UsageError, before anything is made. `wait` False: it returns while
        the snapshot of this step is copied; the checkpoint is there, and `latest` names it, from the first step() on that
        finds it whole, or the next save_checkpoint(), or close(), which raise what goes wrong. Until then a kill leaves the
        one before."""
        self._check_trains()
        if exclude_frozen_parameters:
            raise UsageError("save_checkpoint(exclude_frozen_parameters=True): a checkpoint is a snapshot of the "
                             "whole store; leave it out, and for trained weights alone save what engine.named_weights() "
                             "gives of parameters that require a gradient")
        return checkpoint.save(self, Path(directory), tag, dict(client_state or {}), save_latest, overwrite, wait)

    def load_checkpoint(self, directory: str | Path, tag: str | int | None = None, load_module_strict: bool = True,
                        load_optimizer_states: bool = True, load_lr_scheduler_states: bool = True,
                        load_module_only: bool = False, custom_load_fn: Any = None, *,
                        restore_random: bool = False) -> tuple[str | None, dict[str, Any]]:
        """(None, {}) where there is none yet, as a program's first start finds it. `load_module_strict` False: buffers
        that the model does not have are passed over. `load_optimizer_states` False: weights and buffers alone, and the
        scheduler, also of a checkpoint of another optimizer; moments and counts of steps stay the engine's.
        `load_module_only`: nor the scheduler. `restore_random`: random states are those of that step, too."""
        self._check_trains()
        if custom_load_fn is not None:
            raise UsageError("load_checkpoint(custom_load_fn=...): weights go from snapshot to store, there is no "
                             "state_dict to load; leave it out, and change them by engine.load_state_dict() behind it")
        alone = load_module_only or not load_optimizer_states
        wanted = checkpoint.Wanted(load_module_strict, not alone, load_lr_scheduler_states and not load_module_only,
                                   restore_random)
        return checkpoint.load(self, Path(directory), tag, wanted)

    def close(self) -> None:
        """Commits what is not; the model's weights are in the store then, and its parameters stay released. A second
        time does nothing."""
        self.progress.end()
        self.stop.give_back()
        self.monitors.close()
        try:
            if self._ending.to_come:
                self.visits.give_up()
        finally:
            self._ending.now()

    def release(self) -> nn.Module:
        """The model, as an ordinary one again: its weights are in torch's memory, on the device on which it computed, nothing
        of the engine's is in it, and it may be given to penstock.initialize() anew. Gradients go, and the optimizer that was
        given is as it was then (its moments: export_states() before). What was done is committed, and the engine closed;
        the store stays. FitError, and nothing has happened, where memory has no room for all weights."""
        if self.visits.open or in_backward():
            raise UsageError("engine.release() within a forward or backward: call it between passes")
        if not self._ending.to_come:
            raise UsageError("engine.release() after engine.close(): the weights are in the store, which is closed; call "
                             "release() alone, it closes, too")
        self.visits.end()
        values = self.binding.all_values()
        try:
            self.close()
        finally:
            self._copies.take_away()
            self.optimizer.released()
            self.binding.disown(values)
            self.visits.released = True
        return self.module

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
    def _after_step(self) -> None:
        """Whoever called it, the engine's step() or the optimizer's."""
        self.saving.finish_if_copied()
        if self.stop.asked_by is not None and not self.stop.left_to_caller:
            self.end_stopped()

    def _share_of(self, loss: torch.Tensor) -> torch.Tensor:
        """A micro-batch's, of a step."""
        return loss / self.settings.accumulation if self.settings.accumulation > 1 else loss

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        scale = self.optimizer.loss_scale
        return loss if scale is None else loss.float() * scale.value

    def _check_trains(self) -> None:
        if isinstance(self.optimizer, NothingToTrain):
            self.optimizer.update()

    def _named(self, name: str) -> nn.Parameter:
        if name not in self.binding.named:
            raise UsageError(f"the model has no parameter '{name}'; it has {some(self.binding.named)}")
        return self.binding.named[name]

    @torch.compiler.disable
    def _model_is_called(self, *_: Any) -> None:
        self.stop.computes_in = threading.get_ident()
        kind: PassKind = "training" if torch.is_grad_enabled() else "inference"
        if kind == "training" and not self.visits.open and not in_backward():
            self.binding.check()
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

    def _begin_step(self) -> bool:
        return self.is_gradient_accumulation_boundary() and self.optimizer.begin()

    def _client_state(self) -> Mapping[str, str]:
        return checkpoint.committed_state(self)

    def _tell(self, report: UpdateReport) -> None:
        self._watch.end("step")
        settings, optimizer = self.settings, self.optimizer
        batch = (settings.micro_batch or 1) * settings.accumulation
        self.record = self._meter.measure(self.global_steps, report, self.get_lr()[0], optimizer.loss_scale, batch,
                                          batch * (optimizer.updates + optimizer.skipped))
        self.progress.step(self.record, self.core)
        if self.binding.gradients.steps_alone:  # by optimizer.step(): the scheduler is the program's affair
            self._write_events()

    def _write_events(self) -> None:
        if self.record is not None and self.monitors.enabled:
            self.monitors.write(events_of(self.record, self.get_lr()[0]))


def _check_words(settings: Settings, units: list[Unit]) -> None:
    names = [unit.name for unit in units if unit.module is not None]
    for pattern in settings.activations_of_units:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"Settings(activations={{'{pattern}': ...}}): no unit is named '{pattern}'; the units are "
                             f"{some(names)}")
