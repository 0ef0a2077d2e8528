"""Weights as DeepSpeed's users take them out of an engine and of a checkpoint."""
from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import UsageError


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


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: str | os.PathLike[str], tag: str | None = None,
                                             exclude_frozen_parameters: bool = False, lazy_mode: bool = False
                                             ) -> dict[str, torch.Tensor]:
    """Refused until a snapshot is read without its model."""
    raise UsageError(f"{Path(checkpoint_dir)}: weights are not read out of a checkpoint without its model yet; load "
                     "it, engine.load_checkpoint(), and say engine.save_pretrained(DIR, dtype=torch.float32)")


def load_state_dict_from_zero_checkpoint(model: nn.Module, checkpoint_dir: str | os.PathLike[str],
                                         tag: str | None = None) -> nn.Module:
    """The model, with these weights."""
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir: str | os.PathLike[str],
                                               output_dir: str | os.PathLike[str], *_: Any, **__: Any) -> None:
    """The same, into files."""
    get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir)
