"""Weights that are read outside of their units: a term of the loss over all of them, a logger in a hook, a functional call.
They come for one operation and go again, whatever their number."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import saved_hooks
from ..errors import ModelError, ReleasedError, UsageError
from ..weights.bits import AsTheyWere
from ..weights.handed import VIEW
from ..weights.parameter import Released, values_of
from ..weights.read_only import IN_PLACE
from ..weights.weight_view import WeightView
from .visits import Visits

GIVEN_AS_MEMORY = {"numpy", "__array__", "__dlpack__", "storage", "typed_storage", "share_memory_"}  # no tensors


class Outside:
    """Of one engine."""

    def __init__(self, visits: Visits) -> None:
        self.visits = visits
        self._between = False  # that was between passes: the program may have meant to change weights

    def read(self, parameters: Sequence[Released], operation: str, run: Callable[[], Any]) -> Any:
        """The operation's result. What its graph saves of weights is which ones they are; what lies in them is a copy."""
        binding = self.visits.binding
        names = [binding.names[each] for each in parameters]
        if IN_PLACE.fullmatch(operation):
            raise self._refusal(names[0], operation)
        self._between = binding.running.between_passes
        for each in parameters:
            binding.gradients.check_read(each, operation)
        for name in names:
            self.visits.notes.setdefault(name, operation)
        units = tuple(dict.fromkeys(binding.places[each][0] for each in parameters))
        without_hooks = torch.is_grad_enabled() and not saved_hooks.are_enabled()
        if len(units) > 1 or operation in GIVEN_AS_MEMORY or without_hooks:
            return self._with_copies(parameters, operation, run)
        self.visits.stay(units)
        try:
            return self._own(self._saving(run), parameters[0], copied=False)
        finally:
            self.visits.go()

    # Private.
    def _saving(self, run: Callable[[], Any]) -> Any:
        """A unit's hooks, and the program's as saved_hooks has them, take weights out themselves."""
        if not torch.is_grad_enabled() or not saved_hooks.are_enabled():
            return run()
        if saved_hooks.take_out_of(self.visits):
            return run()
        hooks = Around(self.visits, saved_hooks.innermost())
        with saved_hooks.between(hooks.pack, hooks.unpack):
            return run()

    def _with_copies(self, parameters: Sequence[Released], operation: str, run: Callable[[], Any]) -> Any:
        """Weights of several units need not find room together."""
        binding = self.visits.binding
        lent: list[tuple[Any, torch.Tensor]] = []
        try:
            with torch._C._DisableFuncTorch():  # torch.func's tensors have no memory
                for each in parameters:
                    self.visits.stay((binding.places[each][0],))
                    copy = each.detach().clone()
                    self.visits.go()
                    lent.append((each, copy))
                binding.lend_copies(lent)
            return self._own(self._saving(run), parameters[0], copied=True)
        finally:
            binding.take_copies_back(lent)

    def _own(self, result: Any, parameter: Any, copied: bool) -> Any:
        """What of it lies in weights is told apart; a part of the store's memory is copied."""
        leaves, spec = pytree.tree_flatten(result)
        binding, found = self.visits.binding, False
        for at, each in enumerate(leaves):
            if type(each) is torch.Tensor and not each.is_nested and binding.may_lie_in_weights(each):
                found, whole = True, _is_whole(each, parameter)
                leaves[at] = each if copied else each.clone()
                binding.handed.add(parameter, leaves[at], VIEW)
                if not leaves[at].is_inference():
                    # What a forward makes of weights is large, and nobody changes it but by .data or numpy of another view.
                    came = AsTheyWere(leaves[at], bits=self._between or not each.requires_grad)
                    binding.given_out.add(parameter, leaves[at], came, whole)
        return pytree.tree_unflatten(leaves, spec) if found else result

    def _refusal(self, name: str, operation: str) -> Exception:
        if self.visits.kind is None:
            return ReleasedError(
                f"parameter '{name}' is to be changed by '{operation}' while its values are in the store: change it within "
                "engine.gathered(parameter, modify=True), or by engine.set_weight()")
        return ModelError(
            f"parameter '{name}' was changed by '{operation}' in a unit's forward or a backward: its memory is lent by the store, "
            "which would not see that; change it before or after it, or between steps, within "
            "engine.gathered(parameter, modify=True)")


def _is_whole(view: torch.Tensor, parameter: Any) -> bool:
    there = values_of(parameter)
    return view.data_ptr() == there.data_ptr() and view.shape == there.shape and view.stride() == there.stride()


class Other:
    """What an operation on a weight saved beside it. Torch looks for changes in place only where no hooks are."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor.detach(), tensor._version


class Around(saved_hooks.TakesWeightsOut):
    """Hooks that take weights out; all else goes to those that are around."""

    def __init__(self, visits: Visits, around: tuple[saved_hooks.Pack, saved_hooks.Unpack] | None) -> None:
        self._visits, self._around = visits, around
        self.lender = visits

    def pack(self, tensor: torch.Tensor) -> Any:
        view = self._visits.binding.view_of(tensor)
        if view is not None:
            return view
        tensor = self._visits.kept_apart(tensor)
        return Other(tensor) if self._around is None else (self._around[0](tensor),)

    def unpack(self, kept: Any) -> torch.Tensor:
        if type(kept) is WeightView:
            return self._visits.seen_again(kept, None)
        if isinstance(kept, tuple):
            assert self._around is not None
            return self._around[1](kept[0])
        if kept.tensor._version != kept.version:
            raise UsageError(f"a tensor of shape {tuple(kept.tensor.shape)}, needed for a gradient beside a weight that was "
                             "read outside of its unit, has been modified by an inplace operation since")
        return kept.tensor  # type: ignore[no-any-return]
