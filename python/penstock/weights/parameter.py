"""What a managed parameter is: a leaf whose gradient lies in the core, and whose memory comes and goes.

The class of the parameter object is exchanged, so that everybody who holds it sees the change: `Managed` while its
values are there, `Released` while they are not. A released one has memory that nobody may read (nothing.py), so that code
that goes around the class gets an error, never somebody else's bytes.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..errors import ModelError
from .read_only import IN_PLACE

# Operations that record no graph, whatever requires a gradient.
WITHOUT_GRAPH = frozenset((
    "detach", "data", "item", "tolist", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__contains__",
    "__format__", "equal", "allclose", "isclose", "isnan", "isinf", "isfinite", "eq", "ne", "lt", "le", "gt", "ge",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "argmax", "argmin", "argsort", "count_nonzero",
    "nonzero", "bool", "int", "long"))
# The gradient that autograd itself sees; it is taken away as soon as it is whole.
raw_gradient: Any = torch._C.TensorBase.grad
# Which memory a parameter has. Its version stays.
raw_data: Any = torch._C.TensorBase.data
raw_detach: Any = torch._C.TensorBase.detach


BACKWARDS = (torch.autograd.grad, torch.autograd.backward)


class Keeper(Protocol):
    """Who knows a parameter's place: step/keeper.py's."""

    binding: Any  # to whose memory it is bound

    def gradient_of(self, parameter: Managed) -> torch.Tensor | None: ...

    def set_gradient(self, parameter: Managed, value: torch.Tensor | None) -> None: ...

    def name_of(self, parameter: nn.Parameter) -> str: ...

    def assign(self, parameter: Managed, values: torch.Tensor) -> None: ...

    def copy_of(self, parameter: Managed) -> torch.Tensor: ...

    def let_go(self, but: Iterable[Managed]) -> None:
        """What was brought between passes, and nobody reads any more, goes again; without `but` all of it."""

    def engine(self) -> Any:
        """Whose parameter it is, as long as there is one."""

    def hand_out(self, parameter: Managed) -> None:
        """The program takes its memory."""

    def look_whether_there(self, parameter: Managed) -> None:
        """Its class says whether its values are."""

    def read_outside(self, parameters: list[Released], operation: str, graph: bool, run: Callable[[], Any]) -> Any:
        """Values of these are wanted outside of their units, and by a graph or not: what `run` gives while they are
        there."""


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

    _grad = grad  # torch's other name for it

    @property
    def data(self) -> torch.Tensor:
        """`detach()`, so that what is changed in place counts in the parameter's version."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        self.penstock_keeper.assign(self, value)

    def detach(self) -> torch.Tensor:
        """Told to the keeper: numpy may write into what it gives."""
        self.penstock_keeper.hand_out(self)
        return super().detach()

    def numpy(self, *, force: bool = False) -> Any:
        """The same."""
        self.penstock_keeper.hand_out(self)
        return super().numpy(force=force)

    def set_(self, *args: Any, **kwargs: Any) -> Managed:
        """Torch tells no subclass of it."""
        there: Any = [each.detach() if isinstance(each, Managed) else each for each in args]
        self.data = torch.empty(0, dtype=self.dtype, device=self.device).set_(*there, **kwargs)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        """An ordinary parameter, with the values in memory."""
        if id(self) not in memo:
            memo[id(self)] = nn.Parameter(self.penstock_keeper.copy_of(self), self.requires_grad)
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError(f"parameter '{self.penstock_keeper.name_of(self)}' cannot be pickled: its values are in the "
                         "store; save engine.state_dict(), or a copy: copy.deepcopy(parameter)")


class Watched(Managed):
    """What is done with it is told to the keeper before; what its shape and type, hooks and gradient are, is not."""

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
    # Of its shape and type, without its values; `others`: of another tensor's values.
    likes = frozenset((
        "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
        "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided", "new"))
    others = frozenset(("view_as", "reshape_as", "expand_as", "type_as"))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            name = getattr(func.__self__, "__name__", name)
        if func in BACKWARDS:
            position = 1 if func is torch.autograd.grad else 5
            given = args[position] if len(args) > position else kwargs.get("inputs")
            inputs = [each for each in pytree.tree_leaves(given) if isinstance(each, Watched)]
            args = tuple(each if at == position else _copied(each) for at, each in enumerate(args))
            kwargs = {key: each if key == "inputs" else _copied(each) for key, each in kwargs.items()}
            return _backward(func, args, kwargs, inputs)
        if cls._reads_nothing(name, args, kwargs):
            return _called(func, args, kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        managed = [each for each in leaves if isinstance(each, Managed)]
        graph = _records(name, leaves)
        for keeper in dict.fromkeys(each.penstock_keeper for each in managed):
            keeper.let_go(() if graph else managed)
        there = [each for each in managed if isinstance(each, Released)]
        written = args[:1] or kwargs.get("tensor")  # nn.init gives it by name
        if IN_PLACE.fullmatch(name) and not any(isinstance(each, Managed) for each in pytree.tree_leaves(written)):
            name = f"{name} of another tensor"  # which it is read for
        return _read(there, name, graph, lambda: _called(func, args, kwargs))

    @classmethod
    def _reads_nothing(cls, name: str, args: Any, kwargs: Any) -> bool:
        if name in cls.methods or name in cls.attributes:
            return True
        if name in cls.likes:
            return not any(isinstance(each, Watched) for each in pytree.tree_leaves((args[1:], kwargs)))
        if name in cls.others:
            return not isinstance(args[0], Watched) or (args[0] is args[1] and _is_asked_for_its_node())
        return name == "to" and any(_is_meta(each) for each in (*args[1:], *kwargs.values()))


class Borrowed(Watched):
    """Its values are there between passes, for as long as nothing but the program reads them."""


class Released(Watched):
    """Its values are not there; whoever reads them asks the keeper for them."""

    def __repr__(self) -> str:  # type: ignore[override]
        name = self.penstock_keeper.name_of(self)
        return f"Released parameter '{name}' of shape {tuple(self.shape)}, {self.dtype}: its values are in the store"

    def __format__(self, spec: str) -> str:
        if spec:
            return format(self.detach(), spec)
        return repr(self)

    def stride(self, dim: int | None = None) -> Any:
        """As the values lie that come."""
        like = torch.empty(self.shape, device="meta")
        return like.stride() if dim is None else like.stride(dim)

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """The same."""
        return memory_format is torch.contiguous_format

    def data_ptr(self) -> int:
        """A number that is nobody else's: who looks for parameters over one memory asks for it."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.untyped_storage()._cdata  # type: ignore[no-any-return]


def values_of(parameter: nn.Parameter) -> torch.Tensor:
    """What is there, without telling the keeper."""
    with torch._C.DisableTorchFunctionSubclass():
        return raw_detach(parameter)  # type: ignore[no-any-return]


def _records(operation: str, leaves: list[Any]) -> bool:
    """A graph, which may have what these are now."""
    if not torch.is_grad_enabled() or operation in WITHOUT_GRAPH:
        return False
    if IN_PLACE.fullmatch(operation) and isinstance(leaves[0], Managed):
        return False  # torch refuses it, or it is without gradients
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in leaves)


def _is_asked_for_its_node() -> bool:
    """By torch's hooks on several gradients, which take a view of a leaf to find where its gradient is summed."""
    return sys._getframe(3).f_globals.get("__name__") == torch.autograd.graph.__name__


def _copied(value: Any) -> Any:
    """Of parameters that are no inputs of a backward, but what it begins with."""
    return pytree.tree_map(lambda each: each.detach().clone() if isinstance(each, Watched) else each, value)


def _is_meta(value: Any) -> bool:
    """What to() is told to go to."""
    if isinstance(value, torch.Tensor):
        return value.is_meta
    return str(value) == "meta"


def _backward(func: Any, args: Any, kwargs: Any, inputs: list[Watched]) -> Any:
    """A backward to these as its inputs reads none of them, and within it, from its first node on, all are watched as
    ever."""
    for keeper in dict.fromkeys(each.penstock_keeper for each in inputs):
        keeper.let_go(())

    def watch_again(*_: Any) -> None:
        for each in inputs:
            each.penstock_keeper.look_whether_there(each)
    roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
    nodes = {each.grad_fn for each in pytree.tree_leaves(roots) if isinstance(each, torch.Tensor)} - {None}
    handles = [each.register_prehook(watch_again) for each in nodes if each is not None]
    for each in inputs:
        each.__class__ = Managed  # type: ignore[assignment]
    try:
        return func(*args, **kwargs)
    finally:
        watch_again()
        for handle in handles:
            handle.remove()


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _read(parameters: list[Released], operation: str, graph: bool, run: Callable[[], Any]) -> Any:
    """Each model's by its own keeper."""
    if not parameters:
        return run()
    keeper = parameters[0].penstock_keeper
    own = [each for each in parameters if each.penstock_keeper is keeper]
    others = [each for each in parameters if each.penstock_keeper is not keeper]
    return keeper.read_outside(own, operation, graph, lambda: _read(others, operation, graph, run))


def engine_of(parameter: Any) -> Any:
    """The engine of which it is; None where it is none's."""
    return parameter.penstock_keeper.engine() if isinstance(parameter, Managed) else None
