"""The buffers of a model that belong to its state, such as running statistics: they stay in torch's memory."""
from __future__ import annotations

import base64
import io
from collections.abc import Mapping

import torch
from torch import nn

from .errors import ModelError, some

COMMITTED_BYTES_MAX = 1 << 20  # with every step, in its manifest; statistics of norms have some 10 KiB


def persistent(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                found[f"{prefix}.{key}" if prefix else key] = buffer.detach().clone()
    return found


def take(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    named = dict(model.named_buffers(remove_duplicate=False))
    missing = [name for name in values if name not in named]
    if missing:
        raise ModelError(f"buffers {some(missing)} are in the checkpoint, but not in the model")
    for name, value in values.items():
        named[name].data.copy_(value)


def encode(model: nn.Module, first: Mapping[str, torch.Tensor]) -> str:
    """Those that differ from what the model began with, as text; empty when none does."""
    changed = {name: value for name, value in persistent(model).items()
               if name not in first or not torch.equal(first[name], value)}
    bytes_ = sum(value.numel() * value.element_size() for value in changed.values())
    if bytes_ > COMMITTED_BYTES_MAX:
        raise ModelError(f"buffers {some(changed)} change in training and have {bytes_} bytes, of which a step can "
                         f"commit {COMMITTED_BYTES_MAX}; register them with persistent=False")
    if not changed:
        return ""
    file = io.BytesIO()
    torch.save(changed, file)
    return base64.b64encode(file.getvalue()).decode()


def decode(text: str) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
    return loaded
