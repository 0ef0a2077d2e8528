"""The GPU of each rank, where nobody has chosen one."""
from __future__ import annotations

import logging
import os
import socket
from typing import NamedTuple

import torch

from ..store import Store
from .cores import machine
from .group import Group

CURRENT = "cuda"  # a store's device that is torch's current GPU


class Seat(NamedTuple):
    """Where a rank computes."""

    machine: str
    host: str
    number: int  # of the GPU, as this process counts them
    gpu: str  # its name on its machine; "": none


def take_own(local_rank: int) -> None:
    """torch's current GPU becomes the one of that number, by turns, so that a script's own .cuda() goes there, too. A script
    that has chosen one, torch.cuda.set_device(), keeps it; 0 is what nobody has chosen."""
    count = torch.cuda.device_count()
    if count > 1 and torch.cuda.current_device() == 0:
        torch.cuda.set_device(local_rank % count)


def take_turns(store: Store, group: Group) -> None:
    """All ranks call it; rank 0 tells where two of them have one GPU."""
    before = group.gathered(machine(group.rank))[:group.rank]
    if store.device == CURRENT:  # else the store names one
        take_own(int(os.environ.get("LOCAL_RANK", before.count(machine(group.rank)))))
    seats = group.gathered(_seat(store, group.rank))
    if group.rank == 0:
        for line in shared(seats):
            logging.getLogger("penstock").warning("%s", line)


def shared(seats: list[Seat]) -> list[str]:
    """A line for each GPU that several ranks have."""
    having: dict[tuple[str, str], list[int]] = {}
    for rank, seat in enumerate(seats):
        if seat.gpu:
            having.setdefault((seat.machine, seat.gpu), []).append(rank)
    return [f"ranks {', '.join(map(str, ranks))} compute on one GPU, {seats[ranks[0]].number} of {seats[ranks[0]].host}: they "
            "share its memory and wait for each other; start as many processes as there are GPUs"
            for ranks in having.values() if len(ranks) > 1]


def _seat(store: Store, rank: int) -> Seat:
    device = store.torch_device()
    number = device.index if device.type == "cuda" else -1
    return Seat(machine(rank), socket.gethostname(), number, "" if number < 0 else _name_of(number))


def _name_of(number: int) -> str:
    """The same for all processes that see it, whatever number each of them gives it."""
    told = getattr(torch.cuda.get_device_properties(number), "uuid", None)
    return str(told) if told is not None else f"{number} of {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"
