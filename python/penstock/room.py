"""How much memory is free for what graphs keep: of the host, or of a GPU."""
from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .host_memory import HostMemory

Room = Callable[[], float]  # bytes

FILLED_BYTES_PER_SECOND = 10e9  # no faster
LONGEST_SECONDS = 0.25


def room_of(device: torch.device) -> Room:
    """Of where a model's activations are."""
    return GpuRoom(device) if device.type == "cuda" else HostRoom()


class HostRoom:
    """What the machine, and each control group around the process, can still give. A reading takes 0.1 ms and serves for
    the time in which a quarter of it could be filled."""

    def __init__(self, read: Callable[[], HostMemory] = HostMemory.read) -> None:
        self._read = read
        self._until, self._free = 0.0, 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now >= self._until:
            self._free = float(self._read().available_bytes)
            self._until = now + min(LONGEST_SECONDS, self._free / 4 / FILLED_BYTES_PER_SECOND)
        return self._free

    def forget(self) -> None:
        """Memory was given back: the next call reads anew."""
        self._until = 0.0


class GpuRoom:
    """What the GPU has free, and what torch's allocator holds of it unused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self) -> float:
        free, _ = torch.cuda.mem_get_info(self._device)
        return float(free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))

    def forget(self) -> None:
        """Each call reads."""


# What must stay free of a machine's memory, whatever calls take.
LEAST_BYTES: dict[type, int] = {HostRoom: 64 << 20, GpuRoom: 64 << 20}
