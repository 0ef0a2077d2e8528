"""deepspeed.comm: torch.distributed, by DeepSpeed's names and arguments."""
from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import PeerError, UsageError
from ..machine import processes
from ..ranks import by_mpi
from ..ranks.gpus import take_own
from ..ranks.group import left, started
from ..ranks.meeting import met
from .accelerator import get_accelerator

# Of each call the names that DeepSpeed has for what torch calls otherwise.
CALLS: dict[str, dict[str, str]] = {
    "all_gather": {}, "all_gather_into_tensor": {"tensor": "input_tensor"}, "all_gather_object": {}, "all_reduce": {},
    "all_reduce_coalesced": {}, "all_to_all": {}, "all_to_all_single": {"tensor": "input"}, "barrier": {},
    "batch_isend_irecv": {}, "broadcast": {}, "broadcast_object_list": {}, "gather": {}, "gather_object": {}, "irecv": {},
    "isend": {}, "monitored_barrier": {}, "recv": {}, "reduce": {}, "reduce_scatter": {},
    "reduce_scatter_tensor": {"output_tensor": "output", "tensor": "input"}, "scatter": {}, "scatter_object_list": {},
    "send": {}}
OF_TORCH = frozenset({"GradBucket", "P2POp", "ProcessGroup", "ReduceOp", "get_backend", "group", "is_available",
                      "is_nccl_available", "is_mpi_available"})
OLDER = {"allgather_fn": "all_gather_into_tensor", "reduce_scatter_fn": "reduce_scatter_tensor",
         "inference_all_reduce": "all_reduce"}  # and what each of them is
OF_ITS_LOG = ("prof", "log_name", "debug")  # arguments for DeepSpeed's own log of what was sent
TIMEOUT = timedelta(minutes=30)
OF_LAUNCHERS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


def __getattr__(name: str) -> Any:
    called = OLDER.get(name, name)
    if called in CALLS:
        found = globals()[name] = _of_torch(called)
        return found
    if name in OF_TORCH:
        return getattr(dist, name)
    raise AttributeError(f"deepspeed.comm.{name}: Penstock's deepspeed has no such name")


def _of_torch(name: str) -> Callable[..., Any]:
    """torch's call, which takes DeepSpeed's arguments, too."""
    call, names = getattr(dist, name), CALLS[name]

    @functools.wraps(call)
    def made(*given: Any, **named: Any) -> Any:
        if not is_initialized():
            raise UsageError(f"deepspeed.comm.{name}(): there is no process group yet: call deepspeed.init_distributed() "
                             "or deepspeed.initialize() before")
        return call(*given, **{names.get(key, key): each for key, each in named.items() if key not in OF_ITS_LOG})
    return made


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: timedelta = TIMEOUT, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: Any = None, rank: int = -1,
                     world_size: int = -1) -> None:
    """The default process group: of the processes that a launcher has started, or that `init_method`, `rank` and
    `world_size` name. One process opens no port, and what a launcher sets is set, because programs read it. Raises
    UsageError where it is not known how the processes reach each other, PeerError where they do not come."""
    if is_initialized():
        return
    by_mpi.take_words()
    processes.check_spoken_of(ELSE)
    if dist_init_required is False:
        if started() or world_size > 1:
            raise UsageError("deepspeed.init_distributed(dist_init_required=False): there is no process group; call "
                             "torch.distributed.init_process_group() before, or leave dist_init_required out")
        return
    if not dist.is_available():
        if started():
            raise UsageError("this torch has no torch.distributed: several processes cannot train one model with it")
        return
    atexit.register(left)
    backend = _backend(dist_backend)
    if started() or world_size > 1:
        if get_accelerator().is_gpu:
            take_own(get_local_rank())  # before NCCL takes the current one
        _meet(backend, timeout, init_method, rank, world_size)
        return
    for name, value in {**OF_LAUNCHERS, "MASTER_PORT": str(distributed_port)}.items():
        os.environ.setdefault(name, value)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1,  # type: ignore[attr-defined]
                            timeout=timeout)


ELSE = "Start them by `deepspeed`, `penstock launch`, which knows mpirun and srun, or torchrun"


def _backend(asked: str | None) -> str:
    """NCCL moves tensors of GPUs alone, so gloo is always beside it: for metrics of scripts on the CPU, and for what
    Penstock's ranks say."""
    wanted = asked or get_accelerator().communication_backend_name()
    if wanted == "nccl":
        there = torch.cuda.is_available() and dist.is_nccl_available()
        return "cpu:gloo,cuda:nccl" if there else "gloo"
    return wanted


def _meet(backend: str, timeout: timedelta, init_method: str | None, rank: int, world_size: int) -> None:
    if init_method is None or init_method.startswith("env:"):
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise UsageError(f"deepspeed.init_distributed(): several processes, and {', '.join(missing)} "
                             f"{'is' if len(missing) == 1 else 'are'} not set. {ELSE}")
    store = None
    if "env://" in (init_method or "env://") and rank < 0 and world_size < 0:
        (store, rank, world_size), init_method = met(timeout), None
    try:
        dist.init_process_group(backend, init_method, store=store, timeout=timeout, rank=rank, world_size=world_size)
    except (RuntimeError, ValueError) as problem:
        count = world_size if world_size > 0 else os.environ.get("WORLD_SIZE")
        raise PeerError(f"the {count} processes have not met, for which they have {timeout.total_seconds():.0f} s: {problem}"
                        ) from problem


def new_group(ranks: Any = None, *given: Any, **named: Any) -> Any:
    """torch's: all processes call it, those outside of `ranks`, too."""
    return dist.new_group(ranks, *given, **named)


def destroy_process_group(group: Any = None) -> None:
    """Nothing where there is none."""
    if is_initialized():
        dist.destroy_process_group(group)


def is_initialized() -> bool:
    """Whether there is a process group."""
    return dist.is_available() and dist.is_initialized()


def get_rank(group: Any = None) -> int:
    """0 without a group."""
    return dist.get_rank(group) if is_initialized() else 0


def get_world_size(group: Any = None) -> int:
    """1 without a group."""
    return dist.get_world_size(group) if is_initialized() else 1


def get_local_rank() -> int:
    """As the launcher says."""
    return int(os.environ.get("LOCAL_RANK", "0"))


get_local_rank_from_launcher = get_local_rank


def get_world_rank_from_launcher() -> int:
    """0 where nobody has said it."""
    return int(os.environ.get("RANK", "0"))


def get_world_size_from_launcher() -> int:
    """1 where nobody has said it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_global_rank(group: Any = None, group_rank: int = 0) -> int:
    """Of the group's process of that number."""
    return dist.get_global_rank(group, group_rank) if group is not None and is_initialized() else group_rank


def get_all_ranks_from_group(group: Any = None) -> list[int]:
    """In the group's order."""
    return [get_global_rank(group, each) for each in range(get_world_size(group))]


def get_world_group() -> Any:
    """Of all processes."""
    return dist.group.WORLD if is_initialized() else None


def whole_group(*_: Any, **__: Any) -> Any:
    """Of all processes, which train one model by its data."""
    return get_world_group()


def world_size_of_all(*_: Any, **__: Any) -> int:
    """Of that group."""
    return get_world_size()


def rank_of_all(*_: Any, **__: Any) -> int:
    """In that group."""
    return get_rank()


def own_group(*_: Any, **__: Any) -> Any:
    """Of one process it is that of all; of several it is made by the program (new_group), because all must make it."""
    if get_world_size() > 1:
        raise UsageError("deepspeed.utils.groups: a model in parts over several processes is not Penstock's, so there is no "
                         "group of its parts; _get_data_parallel_group() has all processes")
    return get_world_group()


def alone(*_: Any, **__: Any) -> int:
    """How many processes have parts of a layer, of a sequence, or of experts."""
    return 1


def first(*_: Any, **__: Any) -> int:
    """Which of them this one is."""
    return 0


def has_it(*_: Any, **__: Any) -> bool:
    """This torch has each of DeepSpeed's calls."""
    return True


has_all_gather_into_tensor = has_reduce_scatter_tensor = has_all_reduce_coalesced = has_coalescing_manager = has_it


def configure(*_: Any, **__: Any) -> None:
    """Nothing is logged of what is sent."""


def log_summary(*_: Any, **__: Any) -> None:
    """The same."""
