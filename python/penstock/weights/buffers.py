"""The buffers of a model that belong to its state, such as running statistics: they stay in torch's memory, and their
bytes are committed with each step."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn

from ..errors import ModelError, some


def named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """In the order in which their bytes are kept."""
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                yield f"{prefix}.{key}" if prefix else key, buffer.detach()


def persistent(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in named(model)}


def move(model: nn.Module, device: torch.device) -> None:
    """All of them, also those that belong to no state; what is one tensor stays one."""
    moved: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = moved.setdefault(buffer, buffer.to(device))


def check(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Raises ModelError unless the model has all of them, in their shapes."""
    named = dict(model.named_buffers(remove_duplicate=False))
    missing = [name for name in values if name not in named]
    if missing:
        raise ModelError(f"buffers {some(missing)} are in the checkpoint, but not in the model: load_checkpoint("
                         "load_module_strict=False) passes over them")
    other = [name for name, value in values.items() if named[name].shape != value.shape]
    if other:
        raise ModelError(f"buffers {some(other)} have another shape in the checkpoint than in the model")


def take(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """REQUIRES: check(), but for those that the model does not have."""
    named = dict(model.named_buffers(remove_duplicate=False))
    for name, value in values.items():
        if name in named:
            named[name].data.copy_(value)


class Buffers:
    """Of one model. Their names, shapes and types are those that it has now: the store has room for these."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._modules = model, list(model.modules())
        self._first = _layout(named(model))
        self.count_bytes = sum(buffer.nbytes for _, buffer in named(model))
        self._take_first: Callable[[torch.Tensor], None] | None = None

    def share(self, take_first: Callable[[torch.Tensor], None]) -> None:
        """Of several ranks they are rank 0's before each training forward, as DistributedDataParallel makes them, and in
        each commit."""
        self._take_first = take_first

    def refresh(self) -> None:
        """All ranks call it."""
        if self._take_first is not None and self.count_bytes:
            self.packed()

    def packed(self) -> torch.Tensor | None:
        """The bytes of all of them, one after the other; None: there are none. Raises ModelError of others."""
        if not self._first and not any(map(_has_persistent, self._modules)):
            return None
        now = dict(named(self._model))
        self._check(_layout(now.items()))
        parts = [each.cpu().contiguous().reshape(-1).view(torch.uint8) for each in now.values()]
        if not self.count_bytes:
            return None
        packed = torch.cat(parts)
        if self._take_first is not None:
            self._take_first(packed)
            self.unpack(packed)
        return packed

    def unpack(self, packed: torch.Tensor) -> None:
        """As packed() gave them, of the same model."""
        at = 0
        for _, buffer in named(self._model):
            part = packed[at:at + buffer.nbytes].clone()  # aligned for whatever type
            buffer.copy_(part.view(buffer.dtype).view(buffer.shape))
            at += buffer.nbytes

    def _check(self, now: Layout) -> None:
        if now == self._first:
            return
        new, gone = now.keys() - self._first.keys(), self._first.keys() - now.keys()
        if new:
            raise ModelError(f"buffers {some(sorted(new))} came after penstock.initialize(): a step commits those that "
                             "were there. Register them before, or with persistent=False, which no commit has")
        if gone:
            raise ModelError(f"buffers {some(sorted(gone))} are gone since penstock.initialize(): a step commits all "
                             "that were there. Leave them, or register them with persistent=False, which no commit has")
        name = next(each for each in now if now[each] != self._first[each])
        (shape, dtype), (was_shape, was_dtype) = now[name], self._first[name]
        raise ModelError(f"buffer '{name}' was {was_dtype} of shape {was_shape} at penstock.initialize() and is "
                         f"{dtype} of shape {shape}: a step commits buffers as large as they were. Give it its full size "
                         "at first, or register it with persistent=False, which no commit has")


# Private.
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _layout(named: Iterable[tuple[str, torch.Tensor]]) -> Layout:
    return {name: (tuple(each.shape), each.dtype) for name, each in named}


def _has_persistent(module: nn.Module) -> bool:
    return any(each is not None and key not in module._non_persistent_buffers_set
               for key, each in module._buffers.items()) if module._buffers else False
