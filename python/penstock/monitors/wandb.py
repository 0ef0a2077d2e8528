"""Events in a run of Weights & Biases."""
from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from .events import Event


class Wandb:
    """The run is begun when the engine is made, and is the program's to end, as the package does when the process
    ends. Its own process sends what it is given, each step's values together, and keeps them in the folder `wandb`
    until they are sent."""

    def __init__(self, project: str, group: str | None, team: str | None) -> None:
        self._project, self._group, self._team = project, group, team

    def check(self) -> None:
        self._module()

    def open(self) -> None:
        self._module().init(project=self._project, group=self._group, entity=self._team)

    def write(self, events: Sequence[Event]) -> None:
        for samples, together in groupby(events, itemgetter(2)):
            self._module().log({name: value for name, value, _ in together}, step=samples)

    def close(self) -> None:
        """The program may log on."""

    @staticmethod
    def _module() -> Any:
        try:
            module = importlib.import_module("wandb")
        except ImportError as problem:
            raise ImportError(f"it needs the package wandb ({problem}): pip install wandb") from problem
        if not hasattr(module, "init"):  # a folder of runs looks like a package
            raise ImportError("it needs the package wandb, and found a folder of that name: pip install wandb")
        return module
