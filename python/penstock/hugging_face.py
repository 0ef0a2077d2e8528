"""For transformers' Trainer: its model and optimizer offloaded by one line, a snapshot of the store in each of its
checkpoints, and in its logs what the steps waited for and took. Imports transformers."""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import transformers

from .checkpoints import checkpoint, of_ranks
from .engine import Engine
from .errors import StorageError, UsageError
from .files import description
from .opening import initialize
from .run.progress import listen
from .run.step_record import StepRecord
from .store import Store
from .weights.parameter import engine_of


Answer = TypeVar("Answer")


def offload(trainer: transformers.Trainer, store: Store | str | os.PathLike[str] | None = None, **options: Any
            ) -> Engine:
    """Between the making of a Trainer (of transformers, TRL, …) and its train(): the model's weights, gradients and
    optimizer states are in `store` from then on, a place on NVMe for files of this run, which go with it; None: in host
    memory; a Store: as that says. The Trainer goes on as it is, with its own groups of parameters, schedule, clipping,
    accumulation, logs and checkpoints. Each of these has a snapshot of the store: a run goes on by them alone, as it does
    without Penstock. The logs have what log_figures() adds, and a line says where things lie. The model computes where the Trainer does, unless a Store
    says otherwise. `options`: as of penstock.initialize(). Raises UsageError for a Trainer whose model is DeepSpeed's or
    FSDP's, and what initialize() raises."""
    for has, name in ((trainer.is_deepspeed_enabled, "deepspeed"), (trainer.is_fsdp_enabled, "fsdp")):
        if has:
            raise UsageError(f"offload(trainer): its arguments say {name}=..., which takes the model, too: leave it out")
    if store is not None or not options.keys() & {"core", "config"}:
        store = _on_device_of(trainer, Store.in_memory() if store is None else store)
    listen()
    optimizer = trainer.optimizer if trainer.optimizer is not None else trainer.create_optimizer()
    model: Any = trainer.model
    engine, trainer.optimizer, _, _ = initialize(model, optimizer, store=store, **options)
    kept = KeepSnapshots(engine)
    trainer.add_callback(kept)
    kept.on_init_end(trainer.args, trainer.state, trainer.control)
    log_figures(trainer)
    return engine


def log_figures(trainer: transformers.Trainer) -> None:
    """The Trainer's logs have LogFigures' entries, and so have those to whom it reports. Before its train(); also of
    one with TrainingArguments(deepspeed=...), whose engine is Penstock's."""
    trainer.callback_handler.callbacks.insert(0, LogFigures())


def _on_device_of(trainer: transformers.Trainer, store: Store | str | os.PathLike[str]) -> Store:
    given = store if isinstance(store, Store) else Store(store, keep=False)
    device = trainer.args.device
    return given if given.says("device") or device.type != "cuda" else replace(given, device=str(device))


def known_values(arguments: transformers.TrainingArguments, steps: int | None = None) -> dict[str, Any]:
    """What Trainer's arguments say of the keys that a configuration leaves to "auto", as transformers fills them in for
    DeepSpeed: penstock.initialize(config=..., known=known_values(arguments)). `steps`: of the training; None: max_steps
    of the arguments, where they have one."""
    known: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": arguments.per_device_train_batch_size,
        "gradient_accumulation_steps": arguments.gradient_accumulation_steps,
        "gradient_clipping": arguments.max_grad_norm, "bf16.enabled": arguments.bf16, "fp16.enabled": arguments.fp16,
        "optimizer.params.lr": arguments.learning_rate,
        "optimizer.params.betas": [arguments.adam_beta1, arguments.adam_beta2],
        "optimizer.params.eps": arguments.adam_epsilon, "optimizer.params.weight_decay": arguments.weight_decay,
        "scheduler.params.warmup_min_lr": 0, "scheduler.params.warmup_max_lr": arguments.learning_rate}
    total = steps or (arguments.max_steps if arguments.max_steps > 0 else None)
    if total is not None:
        known["scheduler.params.total_num_steps"] = total
        known["scheduler.params.warmup_num_steps"] = arguments.get_warmup_steps(total)
    return known


class LogFigures(transformers.TrainerCallback):
    """Trainer(..., callbacks=[LogFigures()]) does for logs and terminal what log_figures() does, and comes too late for
    those to whom the Trainer reports. Beside each loss: `penstock_wait_seconds`, of a step for I/O, the mean since the
    entry before; and what the training takes of each tier, in bytes, see step_record.Memory: `penstock_host_bytes`,
    `penstock_nvme_bytes` and, with a GPU, `penstock_device_bytes` and `penstock_torch_device_bytes`. Nothing where the
    model is no engine's."""

    def __init__(self) -> None:
        self._records: list[StepRecord] = []  # since the last entry

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The engine has made its step."""
        engines = (engine_of(each) for each in model.parameters())
        engine = next((each for each in engines if each is not None), None)
        if engine is not None and engine.record is not None:
            self._records.append(engine.record)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Of a step's loss; evaluations and the training's end have entries of their own."""
        if "loss" not in logs or not self._records:
            return
        records, self._records = self._records, []
        memory = records[-1].memory
        figures = {"wait_seconds": sum(each.wait_seconds for each in records) / len(records),
                   "host_bytes": memory.host, "nvme_bytes": memory.nvme}
        if memory.device or memory.torch:
            figures |= {"device_bytes": memory.device, "torch_device_bytes": memory.torch}
        named = {f"penstock_{name}": value for name, value in figures.items()}
        logs.update(named)
        state.log_history[-1].update(named)


class KeepSnapshots(transformers.TrainerCallback):
    """Trainer(..., callbacks=[KeepSnapshots(engine)]): resuming from a checkpoint takes the store back to its step.

    Trainer's own files have the weights and the groups; the moments are in the snapshot, CHECKPOINT/penstock-step-N,
    which goes when Trainer removes the checkpoint. It is copied while the next steps run, unless save_total_limit is 1:
    then Trainer has removed the checkpoint before.

    Of several processes each writes a part of it, before the next step, into one directory that all see; any number of
    processes goes on from it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._stopped = engine, False

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimizer learns where snapshots lie."""
        self.engine.optimizer.leave_moments_to(lambda updates: self._go_back(Path(args.output_dir), updates))
        self._by_one(lambda: self._set_aside(Path(args.output_dir)))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A process may have been stopped between Trainer's files and the snapshot: it is made now."""
        self.engine.stop.leave_to_caller()
        if state.global_step > 0:
            self._keep(args, state)
        elif self.engine.core.resumed is not None and self.engine.global_steps > 0:
            raise UsageError(f"Trainer begins at step 0, the store at step {self.engine.global_steps}, where it was "
                             "stopped: resume from a checkpoint, or remove the store to begin anew")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A signal came, and engine.stop_on_signals() was said: a checkpoint is saved, and train() ends. One that comes
        with the last step changes nothing. Before Trainer saves and removes older checkpoints the newest is whole."""
        if self.engine.stop.ends is not None and state.global_step < state.max_steps:
            control.should_training_stop = control.should_save = self._stopped = True
        if control.should_save:
            self.engine.saving.finish()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """SystemExit, where the training was stopped."""
        self.engine.saving.finish()
        self.engine.stop.leave_to_caller(False)
        if self._stopped:
            self.engine.end_stopped(str(self._checkpoint(args, state)))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A snapshot beside Trainer's own files."""
        self._keep(args, state)

    def _keep(self, args: Any, state: Any) -> None:
        self.engine.saving.finish()
        path = self._checkpoint(args, state) / f"penstock-step-{self.engine.global_steps}"
        new = path.with_name(path.name + ".new")
        if not self._by_one(lambda: self._begin(path, new)):
            return
        self.engine.visits.end()
        if self.engine.group is not None:
            of_ranks.write(self.engine.binding, self.engine.optimizer, self.engine.group, new, self.engine.kept_buffers.packed())
            self._by_one(lambda: self._name(new, path))
            return
        self.engine.saving.begin(str(new), lambda: self._name(new, path))
        if args.save_total_limit == 1:
            self.engine.saving.finish()

    def _begin(self, path: Path, new: Path) -> bool:
        """Whether there is one to make."""
        if path.exists() or not path.parent.exists():
            return False
        shutil.rmtree(new, ignore_errors=True)  # of a process that was stopped while it made one
        if self.engine.group is not None:
            new.mkdir()
        return True

    def _by_one(self, call: Callable[[], Answer]) -> Answer:
        """What one of several processes does in the directory of all; its answer to all."""
        group = self.engine.group
        return call() if group is None else of_ranks.by_first(group, call)

    def _go_back(self, directory: Path, updates: int) -> None:
        found = Path(self._by_one(lambda: str(self._find(directory, updates))))
        checkpoint.take_states(self.engine, found, found)

    def _name(self, new: Path, path: Path) -> None:
        description.write(self.engine.description, new)
        os.replace(new, path)

    def _set_aside(self, directory: Path) -> None:
        """Checkpoints of which a process that was stopped had copied a part, and to whose step the store cannot go: Trainer
        is not to find them."""
        for new in directory.glob("checkpoint-*/penstock-step-*.new"):
            made = new.parent
            here = new.name == f"penstock-step-{self.engine.global_steps}.new"
            if not here and not [each for each in made.glob("penstock-step-*") if each.suffix != ".new"]:
                aside = made.with_name(f"{made.name}.incomplete")
                shutil.rmtree(aside, ignore_errors=True)
                os.replace(made, aside)
                self.engine.progress.warn(f"{made} has the weights alone, because the process was stopped while it was "
                                          f"made: it is {aside.name} now, and Trainer goes on from the one before")

    @staticmethod
    def _checkpoint(args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}"

    @staticmethod
    def _find(directory: Path, updates: int) -> Path:
        found = sorted(directory.glob(f"*/penstock-step-{updates}"))
        if not found:
            raise StorageError(f"{directory}: no checkpoint there has a snapshot of step {updates}; resume from "
                               "another, or begin with the model's weights alone")
        return found[-1]
