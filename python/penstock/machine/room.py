"""How much memory is free for what graphs keep: of the host, or of a GPU; and how much of it a call takes."""
from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import torch

from . import heap
from .host_memory import HostMemory

Room = Callable[[], float]  # bytes

FILLED_BYTES_PER_SECOND = 10e9  # no faster
LONGEST_SECONDS = 0.25
LEAST_BYTES = 64 << 20  # must stay free, whatever calls take
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NEAR = 8  # times what must be free: from there on it is watched how memory grows


def room_of(device: torch.device) -> Measured:
    """Of where a model's activations are."""
    return GpuRoom(device) if device.type == "cuda" else HostRoom()


def room_for(room: Room) -> Asked:
    """As the caller has it: a machine's, or a function's answer."""
    return room if isinstance(room, Asked) else Told(room)


class Asked:
    """By who gives graphs up."""

    def __call__(self) -> float:
        raise NotImplementedError

    def taken_by_a_call(self, reserve_bytes: int) -> float:
        """The most; `reserve_bytes` is what the largest graph has."""
        return reserve_bytes

    def lacking(self, reserve_bytes: int) -> float:
        """For a call that is about to begin, or a backward that is about to go through one."""
        return reserve_bytes - self()

    def look_away(self) -> None:
        """What comes next is none of a call's."""

    def give_back(self) -> None:
        """Memory was freed: the machine shall have it, and the next call read anew."""


class Told(Asked):
    """What a function says, to the byte."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def __call__(self) -> float:
        return self._room()


class Measured(Asked):
    """Of a machine. `grown_bytes`: the most by which its memory grew between two looks, also for what was free again at the
    second, so far as a new height shows it."""

    def __init__(self) -> None:
        self.grown_bytes = 0
        self._then: tuple[int, int] | None = None  # what was taken at the last look, and the height until it

    def forget(self) -> None:
        """The next call reads anew."""

    def give_back(self) -> None:
        heap.trim()  # the C library keeps what is freed, unless it is told
        self.forget()

    def taken_by_a_call(self, reserve_bytes: int) -> float:
        return max(reserve_bytes, self.grown_bytes)

    def wanted(self, reserve_bytes: int) -> float:
        """What must be free for a call."""
        return self.taken_by_a_call(reserve_bytes) + LEAST_BYTES

    def lacking(self, reserve_bytes: int) -> float:
        free = self()
        if free < NEAR * self.wanted(reserve_bytes):
            self.look()
        return self.wanted(reserve_bytes) - free

    def look(self) -> None:
        """A call of a unit is about to begin, or a backward to go through one."""
        taken = self._taken()
        height = max(self._height(), taken)  # the kernel's is some pages late
        if self._then is not None and height > self._then[1]:
            self.grown_bytes = max(self.grown_bytes, height - self._then[0])
        self._then = taken, height

    def look_away(self) -> None:
        self._then = None

    # Private.
    def _taken(self) -> int:
        raise NotImplementedError

    def _height(self) -> int:
        raise NotImplementedError


class HostRoom(Measured):
    """What the machine, and each control group around the process, can still give. A reading takes 0.1 ms and serves for
    the time in which a quarter of it could be filled."""

    def __init__(self, read: Callable[[], HostMemory] = HostMemory.read) -> None:
        super().__init__()
        self._read = read
        self._until, self._free = 0.0, 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now >= self._until:
            self._free = float(self._read().available_bytes)
            self._until = now + min(LONGEST_SECONDS, self._free / 4 / FILLED_BYTES_PER_SECOND)
        return self._free

    def forget(self) -> None:
        self._until = 0.0

    # Private.
    def _taken(self) -> int:
        try:
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[1]) * PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return self._height()

    def _height(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class GpuRoom(Measured):
    """What the GPU has free, and what torch's allocator holds of it unused."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __call__(self) -> float:
        free, _ = torch.cuda.mem_get_info(self._device)
        return float(free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))

    # Private.
    def _taken(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def _height(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)
