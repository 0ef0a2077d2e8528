"""For transformers' Trainer: a snapshot of the store in each of its checkpoints. Imports transformers."""
from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import transformers

from .engine import Engine
from .errors import StorageError, UsageError


class KeepSnapshots(transformers.TrainerCallback):
    """Trainer(..., callbacks=[KeepSnapshots(engine)]): resuming from a checkpoint takes the store back to its step.

    Trainer's own files have the weights and the groups; the moments are in the snapshot, CHECKPOINT/penstock-step-N,
    which goes when Trainer removes the checkpoint."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimizer learns where snapshots lie."""
        self.engine.optimizer.snapshot_path = lambda updates: str(self._find(Path(args.output_dir), updates))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A process may have been stopped between Trainer's files and the snapshot: it is made now."""
        if state.global_step > 0:
            self._keep(args, state)
        elif self.engine.core.resumed is not None and self.engine.global_steps > 0:
            raise UsageError(f"Trainer begins at step 0, the store at step {self.engine.global_steps}, where it was "
                             "stopped: resume from a checkpoint, or remove the store to begin anew")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A snapshot beside Trainer's own files."""
        self._keep(args, state)

    def _keep(self, args: Any, state: Any) -> None:
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        path = checkpoint / f"penstock-step-{self.engine.global_steps}"
        if checkpoint.exists() and not path.exists():
            new = path.with_name(path.name + ".new")
            shutil.rmtree(new, ignore_errors=True)  # of a process that was stopped while it made one
            self.engine.visits.end()
            self.engine.core.begin_snapshot(str(new))
            self.engine.core.finish_snapshot()
            os.replace(new, path)

    @staticmethod
    def _find(directory: Path, updates: int) -> Path:
        found = sorted(directory.glob(f"*/penstock-step-{updates}"))
        if not found:
            raise StorageError(f"{directory}: no checkpoint there has a snapshot of step {updates}; resume from "
                               "another, or begin with the model's weights alone")
        return found[-1]
