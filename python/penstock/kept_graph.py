"""The graph of one call of a unit, kept from its forward to its backward.

Weights come and go, and in backward they lie elsewhere: what a node saves of them is kept as which one it is and how it
is seen, all else as the memory that it is. The first node that runs in a backward brings the unit, as a recompute does.
"""
from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from .errors import ReleasedError, UsageError
from .parameter import Released
from .visits import Call, Visits


class Weight:
    """A view of a parameter's memory, wherever that is."""

    def __init__(self, parameter: nn.Parameter, offset_bytes: int, seen: torch.Tensor, state: int) -> None:
        self.parameter, self.state = parameter, state  # which values it had
        self._offset_bytes, self._dtype = offset_bytes, seen.dtype
        self._shape, self._stride = seen.shape, seen.stride()

    def view(self) -> torch.Tensor:
        """REQUIRES: the parameter is there."""
        there = self.parameter.data
        begin = there.storage_offset() * there.element_size() + self._offset_bytes
        return torch.empty(0, dtype=self._dtype, device=there.device).set_(
            there.untyped_storage(), begin // self._dtype.itemsize, self._shape, self._stride)


class Values:
    """Any other tensor. Torch does not look whether one that hooks have kept was changed in place since. An output of
    the node that saves it refers to that node: it is kept without."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor.detach(), _version(tensor)


class KeptGraph:
    """`bytes`: of what it keeps, each storage once, without weights. `refusal`: why the next ones cannot be kept."""

    def __init__(self, call: Call, visits: Visits) -> None:
        self.bytes = 0
        self.refusal: str | None = None
        self.call, self._visits = call, visits
        self._storages: set[int] = set()
        self._read_in: int | None = None  # the backward

    def hooks(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor: torch.Tensor) -> Weight | Values:
        self.refusal = self.refusal or _refusal(tensor)
        if _refusal(tensor) is not None:
            return Values(tensor.detach().clone())  # a weight may be within
        binding = self._visits.binding
        found = binding.weight_at(tensor)
        if found is not None:
            return Weight(*found, tensor, binding.state_of(found[0]))
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return Values(tensor)

    def unpack(self, kept: Weight | Values) -> torch.Tensor:
        task = torch._C._current_graph_task_id()
        if task not in (-1, self._read_in) and self.call not in self._visits.open:
            self._visits.read_again(self.call)
            self._read_in = task
        return self._weight(kept) if isinstance(kept, Weight) else self._values(kept)

    # Private.
    def _weight(self, kept: Weight) -> torch.Tensor:
        binding, parameter = self._visits.binding, kept.parameter
        name = binding.names[parameter]
        if binding.state_of(parameter) != kept.state:
            raise UsageError(f"parameter '{name}', needed for a gradient in unit '{self.call.name}', was updated or "
                             "written after the forward of this graph: call backward before engine.step()")
        if isinstance(parameter, Released):
            raise ReleasedError(f"parameter '{name}' is needed for a gradient in unit '{self.call.name}', and is not "
                                "there: this should not be; take activations 'recompute', and tell us")
        return kept.view()

    def _values(self, kept: Values) -> torch.Tensor:
        if kept.version != _version(kept.tensor):
            raise UsageError(f"a tensor of shape {tuple(kept.tensor.shape)}, needed for a gradient in unit "
                             f"'{self.call.name}', has been modified by an inplace operation since the forward")
        return kept.tensor


def is_plain(value: object) -> bool:
    """A tensor whose memory is one storage's."""
    return isinstance(value, torch.Tensor) and _refusal(value) is None


def _refusal(tensor: torch.Tensor) -> str | None:
    if type(tensor) is not torch.Tensor and not isinstance(tensor, nn.Parameter):
        return f"it saves a tensor of class {type(tensor).__name__}"
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"it saves a tensor of layout {'nested' if tensor.is_nested else tensor.layout}"
    if tensor.is_conj() or tensor.is_neg():
        return "it saves a tensor that is seen conjugated or negated"
    return None


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
