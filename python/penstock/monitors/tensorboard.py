"""Events in TensorBoard's files, in OUTPUT_PATH/JOB_NAME."""
from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from .events import Event


class TensorBoard:
    """Flushed with each step: a process that is killed loses none of what it had written. Each process begins a file
    of its own there, which TensorBoard shows as one with those before."""

    _writer: Any = None

    def __init__(self, output_path: str, job_name: str) -> None:
        self._folder = os.path.abspath(os.path.join(output_path, job_name))

    def check(self) -> None:
        self._module()

    def open(self) -> None:
        self._writer = self._module().SummaryWriter(log_dir=self._folder)

    def write(self, events: Sequence[Event]) -> None:
        for name, value, samples in events:
            self._writer.add_scalar(name, value, samples)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    @staticmethod
    def _module() -> Any:
        try:
            return importlib.import_module("torch.utils.tensorboard")
        except ImportError as problem:
            raise ImportError(f"it needs the package tensorboard ({problem}): pip install tensorboard") from problem
