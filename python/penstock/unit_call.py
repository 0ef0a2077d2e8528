"""The forward of a unit: torch's own non-reentrant checkpoint, whose two contexts are visits; or, where its graph is
kept, a visit under hooks for what the graph saves.

So every tensor that crosses a unit's boundary is torch's affair, whatever its shape, and weights are read only between
a visit and the next one.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from .activations import Activations
from .errors import ModelError, UsageError, some
from .kept_graph import KeptGraph, is_plain
from .saved_hooks import innermost, innermost_pair
from .shelf import Shelf
from .surroundings import Buffers, RandomStates, as_it_was
from .units import Unit
from .visits import Call, Visits, in_backward


class UnitCall:
    """Takes the place of a module's forward. It belongs to one model: neither copied nor pickled."""

    def __init__(self, unit: Unit, visits: Visits, activations: Activations, shelf: Shelf | None = None) -> None:
        assert unit.module is not None
        self.shelf = shelf  # for what it is given, where it is recomputed
        self.unit, self.visits, self.module = unit, visits, unit.module
        self.activations = activations
        self.forward: Callable[..., Any] = unit.module.forward
        functools.update_wrapper(self, unit.module.forward)

    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        visits = self.visits
        parent = visits.open[-1] if visits.open else None
        call = Call(self.unit.name, self.unit.reads, parent)
        if parent is None and in_backward():
            return self._in_region(call, args, kwargs)
        call.foreign = _in_checkpoint(parent)
        if parent is not None and (call.foreign or not torch.is_grad_enabled()):  # a reentrant one has no gradients
            for each in call.ancestors():
                each.calls_in_checkpoints = True
        if call.foreign or not torch.is_grad_enabled():
            with ForwardVisit(visits, call):
                return self._forward(*args, **kwargs)
        if self.activations.keep:
            return self._kept_or_not(call, args, kwargs)
        return self._checkpointed(call, args, kwargs, ForwardVisit(visits, call))

    def _kept_or_not(self, call: Call, args: Any, kwargs: Any) -> Any:
        call.given_bytes = sum(each.nbytes for each in pytree.tree_leaves((args, kwargs)) if is_plain(each))
        if self.activations.keeps(call) and self._may_keep(call):
            return self._kept(call, args, kwargs)
        if not self.activations.is_measured(call.name):
            return self._checkpointed(call, args, kwargs, MeasuredVisit(self.visits, call, self.activations))
        if not in_backward():
            self.activations.recomputed(call)
        return self._checkpointed(call, args, kwargs, ForwardVisit(self.visits, call))

    def _may_keep(self, call: Call) -> bool:
        own = self.module.__dict__.get("_gradient_checkpointing_func")
        if own is not None and getattr(self.module, "gradient_checkpointing", True):
            self.activations.cannot(call.name, "checkpointing within it is switched on")
            return False
        inside = innermost()
        if inside is None or isinstance(getattr(inside, "__self__", None), KeptGraph):
            return True
        if call.parent is None:
            self.activations.cannot(call.name, "it is called within hooks for saved tensors, which would not see them")
        return False

    def _in_region(self, call: Call, args: Any, kwargs: Any) -> Any:
        """A checkpoint of the user's recomputes this unit: once is enough. Or a hook calls it."""
        call.foreign = True
        self.visits.enter_region(call, *_region())
        try:
            return self._forward(*args, **kwargs)
        finally:
            self.visits.leave_again(call)

    def _kept(self, call: Call, args: Any, kwargs: Any) -> Any:
        graph = KeptGraph(call, self.visits)
        with graph.hooks(), ForwardVisit(self.visits, call):
            out = self._forward(*args, **kwargs)
        self.activations.hold(graph)
        return self._called(out)

    def _checkpointed(self, call: Call, args: Any, kwargs: Any, forward: ForwardVisit) -> Any:
        run = Run(self._without_own_checkpoint, args, kwargs)
        tensors = run.take_tensors()
        buffers = Buffers(self.module)
        contexts = forward, BackwardVisit(self.visits, call, buffers)
        with self.shelf.of_inputs() if self.shelf is not None else contextlib.nullcontext():
            out = checkpoint(run, *tensors, use_reentrant=False, context_fn=lambda: contexts)
        buffers.called()
        return self._called(out)

    def _called(self, out: Any) -> Any:
        if torch.is_autocast_enabled(_device_type(self.module)):
            torch.clear_autocast_cache()  # else a copy of every weight stays until autocast ends
        for each in pytree.tree_leaves(out):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(_refuse_second_order)
        return out

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives out outlives the visit, so no part of it lies in weights: a parameter itself is read outside,
        and held for that; a view of one is copied."""
        out = self.forward(*args, **kwargs)
        if not any(self._is_view_of_weight(each) for each in pytree.tree_leaves(out)):
            return out
        return pytree.tree_map(lambda each: each.clone() if self._is_view_of_weight(each) else each, out)

    def _is_view_of_weight(self, value: Any) -> bool:
        return type(value) is torch.Tensor and value.layout == torch.strided and not value.is_nested and (
            self.visits.binding.weight_at(value) is not None)

    def _without_own_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Layers of transformers checkpoint within their forward, by this attribute: once is enough."""
        own = self.module.__dict__.get("_gradient_checkpointing_func")
        if own is None:
            return self._forward(*args, **kwargs)
        self.module._gradient_checkpointing_func = _call  # type: ignore[assignment]
        try:
            return self._forward(*args, **kwargs)
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
        self._tensors = [leaves[at] for at in self._places]
        self._again = [None if isinstance(each, torch.Tensor) else as_it_was(each) for each in leaves]

    def take_tensors(self) -> list[torch.Tensor]:
        """Those of the arguments: whoever saves them decides for how long they are there."""
        tensors, self._tensors = self._tensors, []
        return tensors

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


class MeasuredVisit(ForwardVisit):
    """Beside the checkpoint that recomputes the call: what its graph would have taken if it had been kept."""

    def __init__(self, visits: Visits, call: Call, activations: Activations) -> None:
        super().__init__(visits, call)
        self.activations = activations

    def __enter__(self) -> None:
        super().__enter__()
        hooks = innermost_pair()
        assert hooks is not None  # the checkpoint's
        packs, unpacks = hooks
        self.graph = KeptGraph(self.call, self.visits)
        self.saved: list[Any] = []  # so that no two are at one address

        def pack(tensor: torch.Tensor) -> Any:
            self.saved.append(self.graph.pack(tensor))
            return packs(tensor)
        self.hooks = saved_tensors_hooks(pack, unpacks)
        self.hooks.__enter__()

    def __exit__(self, kind: Any = None, *others: Any) -> None:
        self.hooks.__exit__(kind, *others)
        if kind is None:
            self.activations.measured(self.graph)
        del self.hooks, self.saved, self.graph
        super().__exit__(kind, *others)


class BackwardVisit:
    """The recompute of one call. Entered again by each backward through a graph that is retained."""

    def __init__(self, visits: Visits, call: Call, buffers: Buffers) -> None:
        self.visits, self.call, self.buffers = visits, call, buffers
        self.random_states = RandomStates()

    def __enter__(self) -> None:
        self.visits.recompute(self.call)
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


def _in_checkpoint(parent: Call | None) -> bool:
    """Of the user's: it is not the one in which the calling unit itself runs."""
    if not torch.is_grad_enabled() or top_hooks() != "_checkpoint_hook":
        return False
    return parent is None or innermost() is not parent.hooks


def _region() -> tuple[Any, bool]:
    """Which, and whether it is a checkpoint's. Non-reentrant: the hooks of the recompute; else the node that is running."""
    node, recomputes = torch._C._current_autograd_node(), top_hooks() == "_recomputation_hook"
    if recomputes and torch.is_grad_enabled():
        return innermost(), True
    return node, recomputes or (node is not None and node.name() == "CheckpointFunctionBackward")


def _device_type(module: nn.Module) -> str:
    return next((each.device.type for each in module.parameters()), "cpu")


def _refuse_second_order(gradient: torch.Tensor) -> None:
    if torch.is_grad_enabled():
        raise UsageError("backward with create_graph: the weights are gone when a gradient of a gradient is taken")
