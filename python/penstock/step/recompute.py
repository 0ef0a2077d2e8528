"""The recompute of a call that was given up: it runs again as it was, and fills what the graph needs."""
from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import generators
from ..errors import ExactnessError, UsageError
from ..machine import heap
from ..weights.weight_view import WeightView
from .kept_call import CalledUnit, KeptCall
from .output import Seen
from .saved_hooks import Programs, TakesWeightsOut, between
from .surroundings import AsItWas
from .visits import Visits

FIRST = 3  # recomputes of a unit, after which it is looked what of them is left


class Recompute(TakesWeightsOut):
    """Of one call, and of those within it, which are told by their position. `call` None: of one that no graph needs any
    more; nothing is filled."""

    def __init__(self, visits: Visits, call: KeptCall | None, within: Recompute | None = None) -> None:
        self.call, self.visits, self.lender = call, visits, visits
        self._within = within
        # Of the outermost.
        self.put_back: list[Callable[[], None]] = []  # what brings back what the program has
        self.graph: list[weakref.ref[torch.Tensor]] | None = None  # what the graph has, that goes with the recompute
        self._at = self._weights = self._child = 0

    def run_all(self) -> None:
        """With all as it was, and then as the program has it."""
        call = self.call
        assert call is not None and call.arguments is not None
        if call.arguments.moved() or call.around.moved():
            raise self._inexact("what it reads has been changed in place since the forward")
        if call.written != self.visits.binding.written_of(call.reads):
            raise UsageError(f"weights of unit '{call.name}', whose forward is run again for a gradient, were updated or written "
                             "after the forward: call backward before engine.step(), and write weights before the forward")
        policy, visits = call.unit.policy, call.unit.visits
        call.begin_again()
        policy.make_room()
        if not visits.binding.large.isdisjoint(call.reads):
            heap.give_back_free_pages()
        policy.recomputed()
        visits.enter_again(call)
        own = [(each, generators.state_of(each)) for each, _ in call.arguments.generators]
        random, required = policy.random.now(), call.unit.require_gradients()
        self.put_back.append(call.around.put())
        entered = Programs.entered
        if call.unit.looked_at < FIRST:
            self.graph = []
        try:
            policy.random.set(call.random)
            call.unit.require(call.required)
            for each, state in call.arguments.generators:
                generators.set_state(each, state)
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.enable_grad())
                for device, enabled, dtype in call.autocast:
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
                self.run(*call.arguments.thaw(self._brought))
        except BaseException:
            call.empty()
            raise
        finally:
            call.end_again()
            for put_back in reversed(self.put_back):
                put_back()
            call.unit.require(required)
            policy.random.set(random)
            for each, state in own:
                generators.set_state(each, state)
            visits.leave_again(call)
        if self.graph is not None and Programs.entered == entered:  # hooks of the program's may keep what they get
            call.unit.recompute_looked_at()
            if self._is_graph_kept():
                call.empty()
                raise self._inexact("it gave a tensor with its graph to something outside of the unit (a list, an attribute of "
                                    "another module), a second time")
        policy.hold(call)

    def run(self, args: Any, kwargs: Any) -> Any:
        call = self.call
        assert call is not None
        with between(self.pack, self.unpack):
            output = call.unit.run(args, kwargs)
        self._check(output)
        call.filled()
        return output

    def nested(self, unit: CalledUnit, args: Any, kwargs: Any) -> Any:
        """A call of a unit within the one that is recomputed."""
        child = None
        if self.call is not None:
            if self._child < len(self.call.children):
                child = self.call.children[self._child]()
            self._child += 1
        if not self._outermost.has(unit.module):
            around = child.around if child is not None else AsItWas(unit.surroundings())
            self._outermost.put_back.append(around.put())
        if child is not None:
            return Recompute(self.visits, child, self._outermost).run(args, kwargs)
        nobody = Recompute(self.visits, None, self._outermost)
        with between(nobody.pack, nobody.unpack):
            return unit.run(args, kwargs)

    def has(self, module: nn.Module) -> bool:
        """As a part of what is recomputed; others have surroundings of their own."""
        assert self.call is not None
        return any(each is module for each in self.call.around.around.modules)

    @property
    def _outermost(self) -> Recompute:
        return self._within or self

    # Hooks for saved tensors.
    def pack(self, tensor: torch.Tensor) -> torch.Tensor | WeightView:
        call = self.call
        if call is None:
            view = self.visits.take_out(tensor)
            return tensor.detach() if view is None else view
        view = call.weight_of(tensor)
        if view is not None:
            self._weights += 1
            return view
        at, self._at = self._at, self._at + 1
        held = call.holders[at]() if at < len(call.holders) else None
        if held is not None and held.tensor is None:
            if (tensor.shape, tensor.dtype, tensor.device) != held.like:
                raise self._inexact(f"it saved a {tensor.dtype} of shape {tuple(tensor.shape)} where the forward saved a "
                                    f"{held.like[1]} of shape {tuple(held.like[0])}")
            held.fill(tensor)
        kept = tensor.detach()
        if self._outermost.graph is not None:
            self._outermost.graph.append(weakref.ref(kept))
        return kept

    def unpack(self, kept: torch.Tensor | WeightView) -> torch.Tensor:
        return self.visits.brought(kept) if isinstance(kept, WeightView) else kept

    # Private.
    def _is_graph_kept(self) -> bool:
        graph = self.graph or []
        if all(ref() is None for ref in graph):
            return False
        gc.collect()  # a node may lead to itself
        return any(ref() is not None for ref in graph)

    def _brought(self, kept: Any) -> torch.Tensor:
        """An argument that was put elsewhere: in the store, as a weight, or on the shelf."""
        assert self.call is not None
        return self.visits.brought(kept) if type(kept) is WeightView else self.call.unit.policy.take_again(kept)

    def _check(self, output: Any) -> None:
        call = self.call
        assert call is not None
        for what, there, expected in (("tensors were saved", self._at, len(call.holders)),
                                      ("weights were saved", self._weights, call.weights),
                                      ("calls of units were made", self._child, len(call.children))):
            if there != expected:
                raise self._inexact(f"{there} {what}, by the forward {expected}")
        now = Seen(output)
        difference = call.seen.difference(now) if call.seen is not None else None
        if difference is not None:
            raise self._inexact(difference)
        if call.seen is not None and not call.seen.is_same(now):
            call.unit.policy.unequal(call.name)

    def _inexact(self, what: str) -> ExactnessError:
        name = self.call.name if self.call is not None else ""
        return ExactnessError(f"unit '{name}': its forward, run again in backward, is not what it was: {what}. It reads or "
                              "changes something that cannot be put back. Keep its graph: "
                              f"penstock.Settings(activations={{'{name}': 'keep'}})")
