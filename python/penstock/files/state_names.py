"""The tensors of a model by the names of its state_dict(), without a state_dict(): no value is read."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import nn

from .safetensors_file import TensorInfo


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers; one that has several names (a tie) comes under each of them."""
    found: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        own = {**module._parameters, **{key: each for key, each in module._buffers.items()
                                        if key not in module._non_persistent_buffers_set}}
        found.update({f"{prefix}.{key}" if prefix else key: each for key, each in own.items() if each is not None})
    return found


def infos_of(state: Mapping[str, torch.Tensor]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(tuple(each.shape), each.dtype) for name, each in state.items()}


def names_by_tensor(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """The names of each tensor, in the order of the model."""
    names: dict[int, list[str]] = {}
    for name, each in state.items():
        names.setdefault(id(each), []).append(name)
    return list(names.values())


def kept_names(model: nn.Module, state: Mapping[str, torch.Tensor]) -> list[str]:
    """What transformers' save_pretrained keeps: of tied names the one that is not said to be tied to another, and
    nothing that the model says is not to be saved."""
    tied = [f"{prefix}.{pattern}" if prefix else pattern for prefix, module in model.named_modules()
            for pattern in getattr(module, "_tied_weights_keys", None) or ()]
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    kept = set()
    for names in names_by_tensor({name: each for name, each in state.items() if name not in ignored}):
        free = [name for name in names if not any(re.search(pattern, name) for pattern in tied)]
        kept.add(free[0] if free else max(names))  # transformers drops them in order, until one is left
    return [name for name in state if name in kept]
