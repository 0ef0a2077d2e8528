"""Who sees a training from outside: TensorBoard, Weights & Biases, files of CSV, as the configuration asks for them.

After each step each of them has that step's events (events.py), and what it has is readable however the process ends:
see its class. One that cannot write any more is told of once, and left out; the training goes on."""
from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import UsageError
from ..machine import processes
from .csv_files import CsvFiles
from .events import Event
from .tensorboard import TensorBoard
from .wandb import Wandb

LOGGER = logging.getLogger("penstock")


class Monitor(Protocol):
    """Calls come in this order; what goes wrong is raised."""

    def check(self) -> None:
        """Whether it can be opened, as far as that is known without doing it."""

    def open(self) -> None: ...

    def write(self, events: Sequence[Event]) -> None: ...

    def close(self) -> None: ...


# By their sections: what makes one of a section's keys.
MAKE: dict[str, Callable[..., Monitor]] = {"tensorboard": TensorBoard, "wandb": Wandb, "csv_monitor": CsvFiles}


class Monitors:
    """Those of one engine, by their sections; of several processes the first alone has any."""

    def __init__(self, monitors: Mapping[str, Monitor] | None = None) -> None:
        self._monitors = dict(monitors or {})

    @staticmethod
    def of(values: Mapping[str, Any]) -> Monitors:
        """Which a configuration's values ask for."""
        found: dict[str, Monitor] = {}
        for section, make in MAKE.items():
            keys = {key.partition(".")[2]: each for key, each in values.items() if key.startswith(f"{section}.")}
            if keys.pop("enabled") and processes.is_first():
                found[section] = make(**keys)
        return Monitors(found)

    @property
    def enabled(self) -> bool:
        """There is one."""
        return bool(self._monitors)

    def check(self) -> None:
        """Before anything is made. Raises UsageError, and so does open()."""
        for section, each in self._monitors.items():
            _refusing(section, each.check)

    def open(self) -> None:
        """The first events may come."""
        for section, each in self._monitors.items():
            _refusing(section, each.open)

    def write(self, events: Sequence[Event]) -> None:
        """Of one step."""
        for section, each in list(self._monitors.items()):
            try:
                each.write(events)
            except Exception as problem:
                del self._monitors[section]
                LOGGER.warning("%s: no more events are written, because of this: %s", section, problem)

    def close(self) -> None:
        """A second time does nothing."""
        monitors, self._monitors = self._monitors, {}
        for section, each in monitors.items():
            try:
                each.close()
            except Exception as problem:
                LOGGER.warning("%s: it was not closed: %s", section, problem)


def _refusing(section: str, act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as problem:
        raise UsageError(f"configuration: {section}: {problem}; or leave the section out") from problem
