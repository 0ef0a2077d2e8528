"""deepspeed.checkpointing: torch's checkpoints, which a managed model takes as they are."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint as torchs

from ..errors import UsageError

_configured = False


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """What `function` gives; it runs again in backward."""
    return torchs.checkpoint(function, *args, use_reentrant=True)


def configure(mpu_: Any = None, deepspeed_config: Any = None, partition_activations: bool | None = None,
              contiguous_checkpointing: bool | None = None, num_checkpoints: int | None = None,
              checkpoint_in_cpu: bool | None = None, synchronize: bool | None = None,
              profile: bool | None = None) -> None:
    """What parts and places of activations mean to several GPUs is nothing in one process; `checkpoint_in_cpu` is a
    setting of Penstock's."""
    global _configured
    if checkpoint_in_cpu:
        raise UsageError("deepspeed.checkpointing.configure(checkpoint_in_cpu=True): leave it out, and say "
                         "memory.activation_budget in the configuration, which lays inputs of units aside")
    _configured = True


def is_configured() -> bool:
    return _configured


def reset() -> None:
    """Nothing is kept between calls."""
