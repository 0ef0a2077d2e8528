"""The ranks of one training: who they are, and what they have alike before its first step."""
from __future__ import annotations

import ctypes
import hashlib
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..errors import UsageError, some
from ..machine import processes
from ..native.look import look
from ..store import Store
from . import by_mpi
from .group import Group, joined, started


def group_of(ranks: Any, own_core: bool = False) -> Group | None:
    """Of the processes that a launcher has started, or that the program has made a group of; None: this one trains
    alone. All of them call it at once. `own_core`: what is trained is a core of the caller's."""
    if ranks is False:
        return None
    if ranks is not None:
        raise UsageError(f"penstock.initialize(ranks={ranks!r}): None, the processes that there are train one model, or "
                         "False, each trains alone, in a directory of its own")
    by_mpi.take_words()
    processes.check_spoken_of()
    if not started():
        return None
    if own_core:
        raise UsageError("penstock.initialize(core=...) in one of several processes: a core is one process's. Name a store; "
                         "or say ranks=False: each trains alone then, in a directory of its own")
    joined()
    return Group()


def store_of_ranks(store: Store, ranks: int) -> Store:
    """What several ranks do not do yet is refused where it was asked for; what nobody asked for is left out."""
    if store.resume_from is not None:
        raise UsageError(f"Store(resume_from=) with {ranks} processes: a checkpoint of several is gone back to by "
                         f"engine.load_checkpoint(), in a store of {ranks} processes that is new or their own; leave it out")
    if store.gradients == "nvme":
        raise UsageError(f"Store(gradients='nvme') with {ranks} processes comes later: leave it out; sum_order='ranks_first' "
                         "keeps those of two units in memory, and of all units the process's part")
    return replace(store, snapshots=False, gradients="cpu")


def make_alike(model: nn.Module, group: Group) -> str | None:
    """Parameters and buffers become rank 0's, as DistributedDataParallel makes them; a line that says so where they were
    others. All ranks call it."""
    named = [*model.named_parameters(), *model.named_buffers()]
    digests = [_digest(each) for _, each in named if not each.is_meta]
    names = [name for name, each in named if not each.is_meta]
    shapes = [(name, tuple(each.shape), str(each.dtype)) for name, each in named]
    told = group.gathered((shapes, digests))
    for rank, (of_rank, _) in enumerate(told):
        if of_rank != told[0][0]:
            other = next((mine for mine, first in zip(of_rank, told[0][0]) if mine != first), None)
            raise UsageError(f"rank {rank} has another model than rank 0"
                             + (f", first at '{other[0]}'" if other else "") + ": all processes make the same one")
    changed = [name for at, name in enumerate(names) if any(of[at] != told[0][1][at] for _, of in told)]
    wanted = set(changed)
    for name, each in named:
        if name in wanted:
            group.take_first(each.detach())
    if not changed:
        return None
    return f"{len(changed)} parameters and buffers were others on other ranks, and are rank 0's now: {some(changed)}"


def go_on(store: Store, group: Group) -> bool:
    """Whether all ranks have committed something there. All of them call it."""
    own = f"{store.paths()[0]}/ranks-{group.ranks}/{group.rank}"
    return all(group.gathered(store.keep and look(own).content != "nothing"))


def _digest(tensor: torch.Tensor) -> str:
    whole = tensor.detach().cpu().contiguous()
    return hashlib.sha256((ctypes.c_char * whole.nbytes).from_address(whole.data_ptr())).hexdigest()
