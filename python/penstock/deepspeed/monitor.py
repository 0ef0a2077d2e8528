"""deepspeed.monitor.monitor: events of the program's own, where the configuration sends the engine's."""
from __future__ import annotations

from collections.abc import Sequence

from ..monitors import Monitors
from ..monitors.events import Event


class MonitorMaster:
    """`monitor_config`: DeepSpeedConfig's. An engine has one that is open already, engine.monitor."""

    def __init__(self, monitor_config: Monitors, are_open: bool = False) -> None:
        self._monitors = monitor_config
        if not are_open:
            monitor_config.check()
            monitor_config.open()

    @property
    def enabled(self) -> bool:
        return self._monitors.enabled

    def write_events(self, event_list: Sequence[Event], flush: bool = True) -> None:
        """(name, value, samples) each; flushed in any case."""
        self._monitors.write(event_list)
