"""Where compute is: passes, the units it reads, and the calls of units that are under way."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from . import saved_hooks
from ..core import PassKind, Visit
from ..errors import EndedError, UsageError
from ..run.stopwatch import Stopwatch
from ..weights.binding import Binding
from ..weights.running import Call
from ..weights.weight_view import WeightView

NONE = -1  # no backward is running


@dataclass
class Backward:
    """One that is under way; another may run within its nodes. `reads` are the units that it goes on reading until it
    comes to another call's graph."""

    reads: set[int] = field(default_factory=set)
    node: Any = None  # the last one that had a weight of these


class Visits:
    """One caller at a time, on any thread. `bound` are the units whose parameters point to memory; the core's readable
    ones are these and some that have been left since the last visit."""

    def __init__(self, binding: Binding, forward: Iterable[Visit] = (), watch: Stopwatch | None = None,
                 trained: Callable[[], None] = lambda: None, begins: Callable[[], bool] = lambda: False) -> None:
        """`forward`: the visits that the core was told to expect of a forward. `trained`: told when a training pass has
        ended. `begins`: asked whether a step begins with a backward, which has come to a weight."""
        self.binding, self.core = binding, binding.core
        self._watch, self._trained, self._begins = watch or Stopwatch(self.core, on=False), trained, begins
        self.notes: dict[str, str] = {}  # parameters that were read outside of their units, and by what
        self.released = False  # the model has its parameters back: nothing of them is to be visited
        self._running, self.open = binding.running, binding.running.open
        self.reading: Call | None = None  # whose graph the backward is in, with its weights there
        self._readable: Visit = ()
        self._bound: set[int] = set()
        self._backwards: dict[int, Backward] = {}  # the end of each will be told
        self._forward: list[Visit] = []
        self._last_forward: list[Visit] = list(forward)
        self._in_order = False  # this pass's backward has been foretold

    @property
    def kind(self) -> PassKind | None:
        """Of the pass; None between passes."""
        return self._running.kind

    # Passes.
    def check_there(self) -> None:
        """Raises EndedError after engine.release()."""
        if self.released:
            raise EndedError("engine.release() has given the model back: a graph from before it has no weights any more, and "
                             "the engine makes no more steps; give the model to penstock.initialize() anew")

    def begin(self, kind: PassKind) -> None:
        """The model is called. An inference pass that nobody ended, ends; a training pass goes on."""
        if not in_backward():
            self._forget_backwards()  # they raised
            if self.open:
                return
        if self.kind == "inference" and not self.open:
            self.end()
        if self.kind is None:
            self.check_there()
            self.binding.loans.before_pass(kind == "training")
            self.core.begin_pass(kind)
            self._running.begin_pass(kind)

    def model_called(self) -> None:
        """The model's forward has returned."""
        if self.kind == "inference" and not self.open:
            self.end()

    def end(self) -> None:
        """No unit is bound any more. Called before whatever comes between passes."""
        if self.kind is None:
            self.check_there()
            return self.binding.loans.settle()
        self._forget_backwards()
        self._leave_all_but(set())
        for unit in self._readable:
            self.binding.gradients.complete(unit)
        self.core.end_pass()
        self._readable = ()
        if self.kind == "training":
            self.binding.look_at_residents()
            if self._forward:
                self._last_forward, self._forward = self._forward, []
            self._trained()
        was, self._in_order = self.kind, False
        self._running.end_pass()
        self.binding.forbid_views()
        if was == "training" and not in_backward():
            self.look_at_given()

    def end_if_idle(self) -> bool:
        """For who changes weights. False: a unit's forward or a backward has them."""
        if self.open or in_backward():
            return False
        if self.kind is not None:  # else what the program has borrowed stays
            self.end()
        return True

    def look_at_given(self) -> None:
        """Called before weights are used again; see given_out.GivenOut."""
        self.binding.given_out.look(self.end_if_idle)

    def check(self) -> None:
        """Raises ModelError when the model is no longer the one that is managed."""
        self.look_at_given()
        self.binding.check()

    def release(self) -> None:
        """No pass begins any more."""
        self.released = True

    def give_up(self) -> None:
        """After an exception: calls that were under way are so no more."""
        self.open.clear()
        self.binding.gradients.give_up_completing()
        self.end()

    # Calls of units.
    def enter(self, call: Call) -> None:
        if self.kind is None or (self.kind == "inference" and torch.is_grad_enabled() and not self.open):
            self.begin("training" if torch.is_grad_enabled() or in_backward() else "inference")
        reads = call.reads
        if not in_backward():
            for unit in reads:
                self.binding.gradients.calls[unit] += 1
        else:
            self.binding.gradients.check_called(reads, call.name)
        wanted = self._streamed(reads)
        if wanted:
            self._forward.append(wanted)
            self._arrive(wanted, self._held())
        self.open.append(call)

    def leave(self, call: Call) -> None:
        self.open.remove(call)
        self._leave_all_but(self._needed())

    def arrive(self, call: Call) -> None:
        """A backward comes to the call's graph: its weights are there until it comes to another one's. Who looks at a graph
        outside of a backward gets copies; so does a backward whose gradients have a graph (create_graph), which keeps them."""
        if in_backward() and call not in self.open and not torch.is_grad_enabled():
            self._come_to(call)

    def enter_again(self, call: Call) -> None:
        """A recompute within a backward; what it brings is read until the backward comes to another call."""
        if self.reading is not call and in_backward() and call not in self.open:
            self._come_to(call)
        self.open.append(call)

    def leave_again(self, call: Call) -> None:
        self.open.remove(call)
        if in_backward() and torch.is_grad_enabled():
            self._this_backward().reads, self.reading = set(), None
            self._leave_all_but(self._needed())

    def _come_to(self, call: Call) -> None:
        self._begin_backward()
        this = self._this_backward()
        this.reads = {*call.reads, *(unit for each in call.ancestors() for unit in each.reads)}
        this.node = torch._C._current_autograd_node()
        wanted = self._streamed(call.reads)
        if wanted:
            self._arrive(wanted, self._held())
        self.reading = call

    # Weights that a graph has.
    def seen_again(self, view: WeightView, call: Call | None) -> torch.Tensor:
        """As a node of the call's graph saved it."""
        binding, parameter = self.binding, view.parameter
        self.check_there()
        if binding.state_of(parameter) != view.state:
            where = f" in unit '{call.name}'" if call is not None else ""
            raise UsageError(f"parameter '{binding.names[parameter]}', needed for a gradient{where}, was updated or "
                             "written after the forward of this graph: call backward before engine.step()")
        if call is None and in_backward():  # of nodes one runs at a time: no call's reads anything now
            self._this_backward().reads, self.reading = set(), None
        values = self._values(parameter, kept=in_backward() and torch.is_grad_enabled())
        if call is not None and in_backward():
            self._this_backward().node = torch._C._current_autograd_node()
        return view.over(values)

    def brought(self, view: WeightView) -> torch.Tensor:
        """Of an argument of a call that is recomputed."""
        return view.over(self._values(view.parameter))

    def take_out(self, tensor: torch.Tensor) -> WeightView | None:
        """See saved_hooks.Lender."""
        view = self.binding.view_of(tensor)
        if view is not None and self.open:
            view = view.within(self.open[-1])
        return view

    def kept_apart(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone() if self.binding.may_lie_in_weights(tensor) else tensor

    def give_again(self, taken: WeightView) -> torch.Tensor:
        call = taken.call
        if call is not None and self.reading is not call and self.binding.place_of(taken.parameter)[0] in call.reads:
            self.arrive(call)
        return self.seen_again(taken, call)

    def hooks_come(self) -> None:
        """What the program has read between passes is not the store's memory, and would not be taken out."""
        if self.kind is None and in_backward():
            self.binding.loans.settle()

    def give_copies(self) -> None:
        """What is read now is no more the core's memory, but copies: graphs without hooks have them as they are."""
        with torch._C._DisableFuncTorch():  # torch.func's tensors have no memory
            for unit in self._streamed(unit for each in self.open for unit in each.reads):
                if unit in self._bound:
                    self.binding.give_copies(unit)
        for each in self.open:
            each.save_without_hooks()

    def stay(self, units: Visit) -> None:
        """Weights of these are there, beside all that is read now, until go()."""
        if self.kind is None:
            self.begin("training" if in_backward() else "inference")
        if in_backward():
            self._begin_backward()
            self._this_backward()
        wanted = self._streamed(units)
        if wanted:
            with torch._C._DisableFuncTorch():  # within a transform weights would come as its tensors, which have no memory
                self._arrive(wanted, self._held())

    def go(self) -> None:
        self._leave_all_but(self._needed())
        self.model_called()

    # Private.
    def _values(self, parameter: nn.Parameter, kept: bool = False) -> torch.Tensor:
        """Its memory, where that is lent now; a copy else, or where a graph keeps it that takes no weights out."""
        there = self.binding.values_of(parameter)
        if there is not None:
            return there.clone() if kept and not saved_hooks.take_out_of(self) else there
        self.stay((self.binding.place_of(parameter)[0],))
        try:
            there = self.binding.values_of(parameter)
            assert there is not None
            return there.clone()
        finally:
            self.go()

    def _held(self) -> set[int]:
        """What is read beside the next visit, so far as it is there."""
        if not self.open and not self._backwards:
            return set()
        late = [each for task, each in self._backwards.items() if not self._has_left(task, each)] if in_backward() else []
        return {*(unit for each in self.open for unit in each.reads), *(unit for each in late for unit in each.reads)}

    def _has_left(self, task: int, backward: Backward) -> bool:
        """In the backward that runs now, the node that runs now reads none of them; of others each node goes on."""
        return task == _backward() and backward.node is not torch._C._current_autograd_node()

    def _needed(self) -> set[int]:
        if not self.open and not self._backwards:
            return set()
        return {*(unit for each in self.open for unit in each.reads),
                *(unit for each in self._backwards.values() for unit in each.reads)}

    def _begin_backward(self) -> None:
        """Once backward begins the rest is known, whatever the model did this time."""
        if self.kind is None or (self.kind == "inference" and not self.open):
            self.begin("training")
        if self._in_order or self.kind != "training":
            return
        self.look_at_given()
        self._in_order = True
        if self._forward and self._forward != self._last_forward:
            self.core.expect("training", reversed(self._forward))
        self.binding.gradients.expect_backward(self._begins)

    def _this_backward(self) -> Backward:
        task = _backward()
        if task not in self._backwards:
            self._backwards[task] = Backward()
            self._watch.begin("backward")  # also of a program that calls loss.backward()
            if task != NONE:
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._backward_ended(task))
        return self._backwards[task]

    def _forget_backwards(self) -> None:
        self._backwards.clear()
        self.reading = None

    def _streamed(self, units: Iterable[int]) -> Visit:
        resident = self.binding.resident
        return tuple(unit for unit in dict.fromkeys(units) if unit not in resident)

    def _arrive(self, wanted: Visit, beside: set[int]) -> None:
        held = tuple(unit for unit in self._readable if unit in beside and unit not in wanted) if beside else ()
        readable = {*wanted, *held}
        for each in self._backwards.values():
            each.reads &= readable
        self.reading = None
        self._leave_all_but(readable)
        for unit in self._readable:
            if unit not in readable:
                self.binding.gradients.complete(unit)
        try:
            self._bring(wanted, held)
        except BaseException:
            self._leave_all_but(set())
            self._readable = ()
            raise

    def _bring(self, wanted: Visit, held: Visit) -> None:
        """Tensors over the core's memory are made once, and are of no inference."""
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                self._bring(wanted, held)
            return
        self.binding.forbid_views()
        self.core.visit(wanted, held)
        self._readable = (*wanted, *held)
        for unit in wanted:
            if unit not in self._bound:
                self.binding.bind(unit)
                self._bound.add(unit)

    def _leave_all_but(self, kept: set[int]) -> None:
        for unit in self._bound - kept:
            self.binding.release(unit)
            self._bound.discard(unit)

    def _backward_ended(self, task: int) -> None:
        self._backwards.pop(task, None)
        self._backwards.pop(NONE, None)
        self.reading = None
        if not self._backwards:
            self._watch.end("backward")
        if not self._backwards and not self.open:
            self.end()


def _backward() -> int:
    """Which is running on this thread; within another's nodes it is one of its own."""
    return torch._C._current_graph_task_id()


def in_backward() -> bool:
    return _backward() != NONE
