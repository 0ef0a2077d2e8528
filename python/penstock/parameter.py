"""What a managed parameter is: a leaf whose gradient lies in the core, and whose memory comes and goes.

The class of the parameter object is exchanged, so that everybody who holds it sees the change: `Managed` while its
values are there, `Released` while they are not. A released one is a view of a single NaN, so that even code that goes
around the class gets NaN, never somebody else's bytes.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

# The gradient that autograd itself sees; it is taken away as soon as it is whole.
raw_gradient: Any = torch._C.TensorBase.grad


class Keeper(Protocol):
    """Who knows a parameter's place: the binding."""

    def gradient_of(self, parameter: Managed) -> torch.Tensor | None: ...

    def set_gradient(self, parameter: Managed, value: torch.Tensor | None) -> None: ...

    def name_of(self, parameter: nn.Parameter) -> str: ...

    def read_outside(self, parameters: list[Released], operation: str, run: Callable[[], Any]) -> Any:
        """Values of these are wanted outside of their units: what `run` gives while they are there."""

    def touched(self, parameter: Released, operation: str) -> None:
        """What cannot be done with a parameter whose values are in the store: raises ReleasedError."""


class Managed(nn.Parameter):
    """`grad` is a view of the core's sum, so that hooks, clipping and zero_grad work as on any parameter."""

    penstock_keeper: Keeper

    @property
    def grad(self) -> torch.Tensor | None:
        return self.penstock_keeper.gradient_of(self)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        self.penstock_keeper.set_gradient(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.penstock_keeper.set_gradient(self, None)


class Released(Managed):
    """Shape, type, hooks and gradient answer; whoever reads values asks the keeper for them."""

    attributes = frozenset((
        "shape", "dtype", "device", "requires_grad", "grad", "is_leaf", "grad_fn", "layout", "ndim", "itemsize",
        "nbytes", "names", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_sparse_csr", "is_nested", "is_quantized",
        "is_mkldnn", "is_xla", "is_mps", "is_xpu", "is_mtia", "is_vulkan", "is_ipu", "is_maia", "retains_grad",
        "output_nr", "grad_dtype", "_version", "_backward_hooks", "_post_accumulate_grad_hooks"))
    methods = frozenset((
        "__set__", "__delete__", "size", "dim", "numel", "nelement", "element_size", "is_floating_point", "is_complex",
        "stride", "storage_offset", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_",
        "__hash__", "__repr__", "__len__", "data_ptr", "is_contiguous", "increment_version", "untyped_storage",
        "is_same_size", "get_device", "is_set_to", "ndimension", "is_conj", "is_neg", "is_inference"))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            name = getattr(func.__self__, "__name__", name)
        if name not in cls.methods and name not in cls.attributes:
            there = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Released)]
            return _read(there, name, lambda: _called(func, args, kwargs))
        return _called(func, args, kwargs)

    def __repr__(self) -> str:  # type: ignore[override]
        name = self.penstock_keeper.name_of(self)
        return f"Released parameter '{name}' of shape {tuple(self.shape)}, {self.dtype}: its values are in the store"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.penstock_keeper.touched(self, "deepcopy")
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.penstock_keeper.touched(self, "pickle")
        raise NotImplementedError


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _read(parameters: list[Released], operation: str, run: Callable[[], Any]) -> Any:
    """Each model's by its own keeper."""
    if not parameters:
        return run()
    keeper = parameters[0].penstock_keeper
    own = [each for each in parameters if each.penstock_keeper is keeper]
    others = [each for each in parameters if each.penstock_keeper is not keeper]
    return keeper.read_outside(own, operation, lambda: _read(others, operation, run))
