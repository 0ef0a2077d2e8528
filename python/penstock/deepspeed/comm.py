"""deepspeed.comm: torch.distributed, of one process."""
from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import UsageError
from ..machine import processes

OF_TORCH = frozenset({
    "ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
    "gather_object", "get_backend", "group", "irecv", "isend", "is_available", "monitored_barrier", "new_group",
    "ProcessGroup", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send"})
TIMEOUT = timedelta(minutes=30)
OF_LAUNCHERS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


def __getattr__(name: str) -> Any:
    if name in OF_TORCH:
        return getattr(dist, name)
    raise AttributeError(f"deepspeed.comm.{name}: Penstock's deepspeed has no such name")


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500,
                     verbose: bool = True, timeout: timedelta = TIMEOUT, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: Any = None, rank: int = -1,
                     world_size: int = -1) -> None:
    """A process group of this process, which opens no port; what a launcher sets is set as for one process, because
    programs read it. Raises UsageError where there are more."""
    if is_initialized():
        _check_alone(dist.get_world_size())
        return
    processes.check_one()
    _check_alone(world_size)
    if dist_init_required is False or not dist.is_available():
        return
    for name, value in {**OF_LAUNCHERS, "MASTER_PORT": str(distributed_port)}.items():
        os.environ.setdefault(name, value)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1,  # type: ignore[attr-defined]
                            timeout=timeout)


def _check_alone(count: int) -> None:
    if count > 1:
        raise UsageError(f"deepspeed.init_distributed(): a process group of {count} processes, and Penstock trains "
                         "with one until it has ranks: start one, `--num_gpus 1` or `num_processes: 1`")


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


def get_global_rank(group: Any = None, group_rank: int = 0) -> int:
    """The same: there is one."""
    return group_rank


def get_world_group() -> Any:
    """Of all processes."""
    return dist.group.WORLD if is_initialized() else None


def whole_group(*_: Any, **__: Any) -> Any:
    """Every group is that of all processes."""
    return get_world_group()


def log_summary(*_: Any, **__: Any) -> None:
    """Nothing was sent."""
