"""The buffers of a model that belong to its state, such as running statistics: they stay in torch's memory, and their
bytes are committed with each step."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from .errors import ModelError, some


def _named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                yield f"{prefix}.{key}" if prefix else key, buffer.detach()


def persistent(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in _named(model)}


def move(model: nn.Module, device: torch.device) -> None:
    """All of them, also those that belong to no state; what is one tensor stays one."""
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = moved.setdefault(buffer, buffer.to(device))


def take(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    named = dict(model.named_buffers(remove_duplicate=False))
    missing = [name for name in values if name not in named]
    if missing:
        raise ModelError(f"buffers {some(missing)} are in the checkpoint, but not in the model")
    for name, value in values.items():
        named[name].data.copy_(value)


def size(model: nn.Module) -> int:
    """Of pack()'s bytes."""
    return sum(buffer.nbytes for _, buffer in _named(model))


def pack(model: nn.Module) -> torch.Tensor:
    """The bytes of all of them, one after the other."""
    parts = [buffer.cpu().contiguous().reshape(-1).view(torch.uint8) for _, buffer in _named(model)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unpack(model: nn.Module, packed: torch.Tensor) -> None:
    """As pack() gave them, of the same model."""
    at = 0
    for _, buffer in _named(model):
        part = packed[at:at + buffer.nbytes].clone()  # aligned for whatever type
        buffer.copy_(part.view(buffer.dtype).view(buffer.shape))
        at += buffer.nbytes
