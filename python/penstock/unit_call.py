"""The forward of a unit: torch's own non-reentrant checkpoint, whose two contexts are visits.

So every tensor that crosses a unit's boundary is torch's affair, whatever its shape, and weights are read only between
a visit and the next one.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from .errors import ModelError, UsageError, some
from .saved_hooks import innermost
from .surroundings import Buffers, RandomStates, as_it_was
from .units import Unit
from .visits import Call, Visits, in_backward


class UnitCall:
    """Takes the place of a module's forward. It belongs to one model: neither copied nor pickled."""

    def __init__(self, unit: Unit, visits: Visits) -> None:
        assert unit.module is not None
        self.unit, self.visits, self.module = unit, visits, unit.module
        self.forward: Callable[..., Any] = unit.module.forward
        functools.update_wrapper(self, unit.module.forward)

    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        visits = self.visits
        parent = visits.open[-1] if visits.open else None
        call = Call(self.unit.name, self.unit.reads, parent)
        if parent is None and in_backward():
            return self._in_region(call, args, kwargs)
        call.foreign = parent is None and torch.is_grad_enabled() and top_hooks() == "_checkpoint_hook"
        if call.foreign or not torch.is_grad_enabled():
            with ForwardVisit(visits, call):
                return self.forward(*args, **kwargs)
        return self._checkpointed(call, args, kwargs)

    def _in_region(self, call: Call, args: Any, kwargs: Any) -> Any:
        """A checkpoint of the user's recomputes this unit: once is enough."""
        call.foreign = True
        self.visits.enter_region(call, _region_key())
        try:
            return self.forward(*args, **kwargs)
        finally:
            self.visits.leave_again(call)

    def _checkpointed(self, call: Call, args: Any, kwargs: Any) -> Any:
        run = Run(self._without_own_checkpoint, args, kwargs)
        buffers = Buffers(self.module)
        contexts = ForwardVisit(self.visits, call), BackwardVisit(self.visits, call, buffers)
        out = checkpoint(run, *run.tensors, use_reentrant=False, context_fn=lambda: contexts)
        buffers.called()
        if torch.is_autocast_enabled(_device_type(self.module)):
            torch.clear_autocast_cache()  # else a copy of every weight stays until autocast ends
        for each in pytree.tree_leaves(out):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(_refuse_second_order)
        return out

    def _without_own_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Layers of transformers checkpoint within their forward, by this attribute: once is enough."""
        own = self.module.__dict__.get("_gradient_checkpointing_func")
        if own is None:
            return self.forward(*args, **kwargs)
        self.module._gradient_checkpointing_func = _call  # type: ignore[assignment]
        try:
            return self.forward(*args, **kwargs)
        finally:
            self.module._gradient_checkpointing_func = own

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise ModelError(f"unit '{self.unit.name}' cannot be copied: its weights are in the store; copy the model "
                         "before penstock.initialize(), or take engine.state_dict()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError(f"unit '{self.unit.name}' cannot be pickled: its weights are in the store; save "
                         "engine.state_dict(), not the model")


def compiled_in_vain(model: nn.Module, units: list[Unit]) -> str | None:
    """What to say of modules whose whole call is compiled: a visit comes between it and the forward."""
    names = [unit.name for unit in units if unit.module is not None and _call_is_compiled(unit.module)]
    if _call_is_compiled(model) or type(model).__name__ == "OptimizedModule":
        names.insert(0, "the model")
    if not names:
        return None
    return (f"compiled as a whole are {some(names)}: they run as they are. What is compiled within units is used: "
            "model.layers[i] = torch.compile(model.layers[i]) before penstock.initialize()")


def _call_is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


class Run:
    """A forward with its arguments, which can be run again as it was. Tensors are given to the checkpoint one by one,
    so that it keeps them as saved tensors: their versions are checked, and outer hooks see them."""

    def __init__(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._forward = forward
        # The caller's own containers: what the forward puts into them counts.
        self._first: tuple[Any, Any] | None = (args, kwargs)
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self._places = [at for at, each in enumerate(leaves) if isinstance(each, torch.Tensor)]
        self.tensors = [leaves[at] for at in self._places]
        self._again = [None if isinstance(each, torch.Tensor) else as_it_was(each) for each in leaves]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        if self._first is not None:
            (args, kwargs), self._first = self._first, None
            return self._forward(*args, **kwargs)
        leaves = [as_it_was(each) for each in self._again]
        for at, tensor in zip(self._places, tensors):
            leaves[at] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._forward(*args, **kwargs)


class ForwardVisit:
    def __init__(self, visits: Visits, call: Call) -> None:
        self.visits, self.call = visits, call

    def __enter__(self) -> None:
        self.visits.enter(self.call)

    def __exit__(self, *_: Any) -> None:
        self.visits.leave(self.call)


class BackwardVisit:
    """The recompute of one call. Entered again by each backward through a graph that is retained."""

    def __init__(self, visits: Visits, call: Call, buffers: Buffers) -> None:
        self.visits, self.call, self.buffers = visits, call, buffers
        self.random_states = RandomStates()

    def __enter__(self) -> None:
        self.visits.enter_again(self.call)
        self.after, self.now = RandomStates(), self.buffers.restore()
        self.random_states.restore()

    def __exit__(self, *_: Any) -> None:
        self.after.restore()
        self.buffers.undo(self.now)
        del self.after, self.now
        self.visits.leave_again(self.call)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def top_hooks() -> str | None:
    """Whose saved-tensor hooks are innermost: torch's checkpoint names its own."""
    packs = innermost()
    return None if packs is None else packs.__qualname__.split(".")[0]


def _region_key() -> Any:
    """Non-reentrant: the hooks of the recompute; reentrant: the node that is running."""
    if torch.is_grad_enabled() and top_hooks() == "_recomputation_hook":
        return innermost()
    return torch._C._current_autograd_node()


def _device_type(module: nn.Module) -> str:
    return next((each.device.type for each in module.parameters()), "cpu")


def _refuse_second_order(gradient: torch.Tensor) -> None:
    if torch.is_grad_enabled():
        raise UsageError("backward with create_graph: the weights are gone when a gradient of a gradient is taken")
