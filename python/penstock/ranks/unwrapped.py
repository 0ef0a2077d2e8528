"""DistributedDataParallel of a model that an engine trains with several processes is that model: the engine averages its
gradients, and its first weights and buffers are rank 0's already. So Accelerate, which wraps what it prepares, and
transformers' Trainer with it, work as in one process."""
from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..weights.parameter import engine_of


def leave_unwrapped() -> None:
    """From now on, in this process; of models without such an engine nothing changes."""
    DistributedDataParallel.__new__ = _made  # type: ignore[method-assign]


def _made(cls: type[Any], module: Any = None, *_: Any, **__: Any) -> Any:
    """What is no instance of the class is not initialized by it."""
    return module if _is_trained_by_ranks(module) else object.__new__(cls)


def _is_trained_by_ranks(module: Any) -> bool:
    if not isinstance(module, nn.Module):
        return False
    engines = (engine_of(each) for each in module.parameters())
    engine = next((each for each in engines if each is not None), None)
    return engine is not None and engine.group is not None
