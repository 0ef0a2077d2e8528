"""Weights as DeepSpeed's users take them out of an engine and of a checkpoint."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn


def clone_tensors_for_torch_save(item: Any, device: Any = torch.device("cpu")) -> Any:
    """The same containers, with tensors that share no memory with others; one that is there twice stays one."""
    seen: dict[int, torch.Tensor] = {}

    def cloned(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            if id(each) not in seen:
                seen[id(each)] = each.detach().clone().to(device)
            return seen[id(each)]
        if isinstance(each, (list, tuple)):
            return type(each)(cloned(one) for one in each)
        if isinstance(each, dict):
            return type(each)({key: cloned(one) for key, one in each.items()})
        return each
    return cloned(item)


def consolidated(module: nn.Module, without_frozen: bool) -> OrderedDict[str, torch.Tensor]:
    """The module's state_dict(), as it is or without its frozen parameters."""
    state: Any = module.state_dict()
    if not without_frozen:
        return state  # type: ignore[no-any-return]
    frozen = {name for name, each in module.named_parameters(remove_duplicate=False) if not each.requires_grad}
    return OrderedDict((name, each) for name, each in state.items() if name not in frozen)
