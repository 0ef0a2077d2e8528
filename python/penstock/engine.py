"""The engine: a managed model, its optimizer and the step, with the calls that DeepSpeed's users know."""
from __future__ import annotations

import signal
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from .checkpoints import checkpoint
from .checkpoints.going_on import Script
from .checkpoints.kept_scheduler import KeptScheduler
from .configuration.deepspeed_calls import DeepSpeedsCalls
from .core import Core, UpdateReport, Visit
from .errors import NoGradientError, UsageError
from .managed_model import Listeners, ManagedModel
from .monitors import Monitors
from .monitors.events import events_of
from .optimizer import Alongside, NothingToTrain, Optimizer
from .optimizers.kind import Mapped
from .ranks.even import Batch, Even, Until, even
from .ranks.group import Group
from .ranks.unwrapped import leave_unwrapped
from .run.ending import Ending, Undisturbed, settle
from .run.loader import Loader
from .run.progress import Progress
from .run.saving import Saving
from .run.step_record import StepMeter, StepRecord
from .run.stop_signals import SIGNALS, StopSignals
from .settings import Settings
from .step.visits import in_backward
from .units import Unit


class Engine(DeepSpeedsCalls, ManagedModel):
    """Made by penstock.initialize(). `module` is the model that was given; it may be called by itself as well, and its
    optimizer stepped by itself. One caller at a time. What was done is committed when it is closed (`with engine:`
    does), when nothing refers to it any more, and when the interpreter ends, also after an interrupt."""

    optimizer_class: type[Optimizer] = Optimizer

    def __init__(self, model: nn.Module, units: list[Unit], core: Core, mapped: Mapped | None, settings: Settings,
                 forward: Sequence[Visit] = (), progress: Progress | None = None) -> None:
        stop = StopSignals()
        super().__init__(model, units, core, settings, forward, progress or Progress(settings.steps_per_print),
                         Listeners(stop.steps_here, self._begin_step))
        self.stop, self.saving, self._meter = stop, Saving(core), StepMeter(core, self._watch)
        weakref.finalize(self, stop.give_back)
        self.optimizer = NothingToTrain(settings.clip, settings.loss_scale) if mapped is None else self.optimizer_class(
            mapped, self.visits, self._watch, settings.clip, settings.loss_scale,
            Alongside(self._committed, self.kept_buffers.packed, self.saving.finish, self._tell, self._after_step))
        self.lr_scheduler: Any = None
        self.scheduler: KeptScheduler | None = None  # the same one, as it is committed
        self.loader: Loader | None = None
        self.group: Group | None = None  # of several processes
        self._loop: Even[Any] | None = None  # the newest of even()
        self.given: Any = None  # what a core reads weights from again and again; it is kept here
        self.micro_steps = 0
        self.counted_from = 0  # micro_steps, at the newest update
        self._boundary: bool | None = None  # what the program says of the next step(); None: it is counted
        self.monitors = Monitors()
        self.record: StepRecord | None = None  # of the newest step
        self.newest: Mapping[str, str] = {}  # what that committed beside the weights
        if core.resumed is not None:
            checkpoint.take_committed_state(self, core.resumed)
        self.script = Script(self.optimizer.param_groups, settings)
        self._ending = Ending(self, core, self._keep_changes, self.saving)
        self.progress.begin(core, self._compiled)
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

    def use_monitors(self, monitors: Monitors) -> None:
        """They are told of each step."""
        self.monitors = monitors
        monitors.open()

    def keep_alive(self, given: Any) -> None:
        """What the core reads weights from again and again goes with the engine."""
        self.given = given

    def count_from(self, micro_steps: int) -> None:
        """From an update behind so many."""
        self.micro_steps = self.counted_from = micro_steps

    def use_group(self, group: Group) -> None:
        """The ranks that train this model together: buffers are rank 0's, and all end behind the same step."""
        self.group = group
        group.speak_through(self.core.gather)
        leave_unwrapped()
        self.kept_buffers.share(group.take_first)

    def use_loader(self, loader: Loader) -> None:
        """Its position is committed with each step, and it goes on where the store does."""
        self.loader = loader
        addends = self.binding.gradients.addends  # alone: a loader does not keep its engine
        loader.follow(lambda: addends.all)
        position = (self.core.resumed or {}).get("loader")
        if position is not None:
            loader.go_to(position)

    def even(self, loader: Iterable[Batch], until: Until = "shortest") -> Iterable[Batch]:
        """A loop over a loader of the program's own that has as many batches on each of several processes, whatever the
        loaders have; of one process it is the loader itself. All make their loops in the same order. `until`: "shortest"
        ends it for all where it ends for one; "longest" where it ends for all: who has no batch any more gets its last one
        again, whose loss engine.backward() counts as 0."""
        loop = even(None if self.group is None else partial(self.group.gathered, what="a batch of engine.even()"), loader,
                    until)
        self._loop = loop if isinstance(loop, Even) else None
        return loop

    # The three calls of a step.
    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True, *,
                 allreduce_gradients: bool = True, release_loss: bool = False) -> torch.Tensor:
        """Adds the gradient of a micro-batch's loss, which it divides by their number (`scale_wrt_gas` False: not) and
        scales itself. The others are DeepSpeed's, and nothing in one process."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise UsageError("engine.backward() takes a loss of one element, "
                             f"not {tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__}")
        counts = self._loop is None or self._loop.counts
        scaled = self._scaled(self._share_of(loss) if scale_wrt_gas else loss)
        scaled = scaled if counts else scaled * 0
        with self.binding.gradients.scaled(), self._watch.timing("backward"):
            scaled.backward(retain_graph=retain_graph)
        if counts:
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
            self.binding.gradients.step_by_engine()
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
        """The end itself, for those who took it over (stop.leave_to_caller()): commits, and raises SystemExit. `checkpoint`: has
        this step, and is what a store for one run is gone on from."""
        settle(self.core)
        self.stop.end(self.global_steps, self.core.kept, checkpoint)

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
            self.optimizer.released()
            self._give_back(values)
        return self.module

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Private.
    def _after_step(self) -> None:
        """Whoever called it, the engine's step() or the optimizer's."""
        self.saving.finish_if_copied()
        if self.stop.ends is not None and not self.stop.left_to_caller:
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

    def _begin_step(self) -> bool:
        return self.is_gradient_accumulation_boundary() and self.optimizer.begin()

    def _committed(self) -> Mapping[str, str]:
        self._meter.begin_update()
        self.newest = checkpoint.committed_state(self)
        return self.newest

    def _tell(self, report: UpdateReport) -> None:
        self._watch.end("step")
        settings, optimizer = self.settings, self.optimizer
        own_seconds: tuple[float, ...] = ()
        if self.group is not None:
            wishes, own_seconds = zip(*self.group.gathered((self.stop.asked_by, self._meter.own_seconds),
                                                            "the end of engine.step()"))
            self.stop.agree(wishes)
        batch = (settings.micro_batch or 1) * settings.accumulation * self.world_size
        self.record = self._meter.measure(self.global_steps, report, self.get_lr()[0], optimizer.loss_scale, batch,
                                          batch * (optimizer.updates + optimizer.skipped), own_seconds)
        self.progress.step(self.record, self.core)
        if self.binding.gradients.steps_alone:  # by optimizer.step(): the scheduler is the program's affair
            self._write_events()

    def _write_events(self) -> None:
        if self.record is not None and self.monitors.enabled:
            self.monitors.write(events_of(self.record, self.get_lr()[0]))
