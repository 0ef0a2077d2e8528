"""Where compute is: passes, the units it reads, and the calls of units that are under way."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import heap
from .binding import Binding
from .core import Core, PassKind, Visit
from .errors import ModelError, ReleasedError
from .parameter import Released
from .saved_hooks import innermost


NONE = -1  # no backward is running
IN_PLACE = {"__setitem__"} | {f"__i{name}__" for name in (
    "add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")}


@dataclass(eq=False)
class Call:
    """One call of a unit's forward. `parent` is the call within which it was made; `given_bytes` are its arguments';
    `hooks` packs what it saves, while it runs."""

    name: str
    reads: Visit
    parent: Call | None = None
    foreign: bool = False  # within a checkpoint of the user's
    calls_in_checkpoints: bool = False  # other units, in checkpoints of its own
    given_bytes: int = 0
    hooks: Any = None

    def ancestors(self) -> Iterable[Call]:
        each = self.parent
        while each is not None:
            yield each
            each = each.parent


@dataclass
class Region:
    """What a checkpoint of the user's is recomputing: its backward reads all units of it."""

    key: Any = None
    units: Visit = ()


@dataclass
class Backward:
    """One that is under way; another may run within its nodes. `left` is the call whose graph it came to last, `reads`
    are the units that it goes on reading until its next visit."""

    left: Call | None = None
    reads: set[int] = field(default_factory=set)


class Visits:
    """One caller at a time, on any thread. `bound` are the units whose parameters point to memory; the core's readable
    ones are these and some that have been left since the last visit."""

    def __init__(self, core: Core, forward: Iterable[Visit] = ()) -> None:
        """`forward`: the visits that the core was told to expect of a forward."""
        self.core = core
        self.binding: Binding  # set by the engine, which builds both
        self.beginning: Callable[[], bool] = lambda: False  # a step, with this backward: whether it was
        self.trained: Callable[[], None] = lambda: None  # a training pass has ended
        self.notes: dict[str, str] = {}  # parameters that were read outside of their units, and by what
        self.kind: PassKind | None = None
        self.open: list[Call] = []
        self._readable: Visit = ()
        self._bound: set[int] = set()
        self._outside: Visit = ()
        self._region = Region()
        self._backwards: dict[int, Backward] = {}  # the end of each will be told
        self._forward: list[Visit] = []
        self._last_forward: list[Visit] = list(forward)
        self._in_order = False  # this pass's backward has been foretold

    # Passes.
    def begin(self, kind: PassKind) -> None:
        """The model is called. An inference pass that nobody ended, ends; a training pass goes on."""
        if not in_backward():
            self._backwards.clear()  # they raised
            if self.open:
                return
        if self.kind == "inference" and not self.open:
            self.end()
        if self.kind is None:
            self.binding.loans.before_pass(kind == "training")
            self.core.begin_pass(kind)
            self.kind = kind

    def model_called(self) -> None:
        """The model's forward has returned."""
        if self.kind == "inference" and not self.open:
            self.end()

    def end(self) -> None:
        """No unit is bound any more. Called before whatever comes between passes."""
        if self.kind is None:
            return self.binding.loans.settle()
        outside, self._outside, self._region = self._outside, (), Region()
        self._backwards.clear()
        self._leave_all_but(set())
        for unit in outside:
            self.binding.invalidate(unit)
        for unit in self._readable:
            self.binding.complete(unit)
        self.core.end_pass()
        self._readable = ()
        if self.kind == "training":
            self.binding.look_at_residents()
            if self._forward:
                self._last_forward, self._forward = self._forward, []
            self.trained()
        self.kind, self._in_order = None, False

    def give_up(self) -> None:
        """After an exception: calls that were under way are so no more."""
        self.open.clear()
        self.binding.completing = False
        self.end()

    # Calls of units.
    def enter(self, call: Call) -> None:
        self._begin_if_none()
        if not call.foreign and call.parent is None:
            self._region = Region()
        self._arrive(call.reads, (*_reads(call.ancestors()), *(self._read_late() if in_backward() else ())))
        if self._streamed(call.reads):
            self._forward.append(self._streamed(call.reads))
        self._opened(call)

    def leave(self, call: Call) -> None:
        self._closed(call)
        self._leave_all_but(self._needed())

    def enter_again(self, call: Call) -> None:
        """A recompute within a backward; what it brings is read until the next one."""
        self._begin_if_none()
        self._foretell()
        ancestors = list(call.ancestors())
        if not any(each.foreign for each in ancestors):
            self._region = Region()
        self._arrive_late(call.reads, (*self._region.units, *_reads(ancestors)))
        self._this_backward().left = call
        self._opened(call)

    def recompute(self, call: Call) -> None:
        """As enter_again(). A kept graph does not come here: where graphs are kept, memory is fullest before the first
        of them is freed, and the next forward wants those pages again."""
        self.enter_again(call)
        if not self.binding.large.isdisjoint(call.reads):
            heap.give_back_free_pages()

    def leave_again(self, call: Call) -> None:
        self._closed(call)

    def read_again(self, call: Call) -> None:
        """A backward comes to a graph of it that was kept: as a recompute, without computing."""
        self.enter_again(call)
        self.leave_again(call)

    def enter_region(self, call: Call, key: Any, checkpoint: bool) -> None:
        """A checkpoint of the user's recomputes, `key` says which, or a hook calls. Where that is within a unit's
        backward, the unit goes on reading its weights."""
        self._begin_if_none()
        if self._region.key is not key:
            self._region = Region(key)
        around: Visit = ()
        left = self._this_backward().left
        if left is not None and (left.calls_in_checkpoints or not checkpoint):
            around = (*left.reads, *_reads(left.ancestors()))
        self._arrive_late(call.reads, (*self._region.units, *around))
        self._region.units = tuple(dict.fromkeys((*self._region.units, *call.reads)))
        self._opened(call)

    def touched(self, parameter: Released, operation: str) -> None:
        """Within a pass a parameter that is read outside of its unit stays until the step; else it is an error."""
        unit, _ = self.binding.places[parameter]
        name = self.binding.names[parameter]
        unit_name = self.core.units[unit].name
        if self.kind is None or operation in ("deepcopy", "pickle"):
            raise ReleasedError(
                f"parameter '{name}' was read by '{operation}' while its values are in the store. In a forward "
                f"they come by themselves; else read them with engine.weight('{name}') or within "
                f"engine.gathered(), or keep the unit in memory: penstock.initialize(resident=['{unit_name}'])")
        if _writes(operation):
            raise ModelError(
                f"parameter '{name}' was changed by '{operation}' in a forward: its memory is lent by the store, which "
                f"would not see that; change it between steps, within engine.gathered(parameter, modify=True)")
        self.notes.setdefault(name, operation)
        self._outside = (*self._outside, unit)
        self._arrive((unit,), self._read_late())
        if in_backward():
            self._this_backward()

    # Private.
    def _opened(self, call: Call) -> None:
        call.hooks = innermost()
        self.open.append(call)

    def _closed(self, call: Call) -> None:
        call.hooks = None  # they hold the graph
        self.open.remove(call)

    def _begin_if_none(self) -> None:
        if self.kind is None or (self.kind == "inference" and torch.is_grad_enabled() and not self.open):
            self.begin("training" if torch.is_grad_enabled() or in_backward() else "inference")

    def _this_backward(self) -> Backward:
        task = _backward()
        if task not in self._backwards:
            self._backwards[task] = Backward()
            if task != NONE:
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._backward_ended(task))
        return self._backwards[task]

    def _read_late(self) -> Visit:
        return tuple(unit for each in self._backwards.values() for unit in each.reads)

    def _arrive_late(self, reads: Visit, beside: Iterable[int]) -> None:
        """In this backward, which may run within the nodes of others."""
        this = self._this_backward()
        this.reads = {*reads, *beside}
        self._arrive(reads, self._read_late())

    def _streamed(self, units: Iterable[int]) -> Visit:
        return tuple(unit for unit in dict.fromkeys(units) if unit not in self.binding.resident)

    def _arrive(self, reads: Visit, beside: Iterable[int]) -> None:
        wanted = self._streamed(reads)
        if not wanted:
            return
        held = self._streamed((*self._outside, *_reads(self.open), *beside))
        held = tuple(unit for unit in held if unit in self._readable and unit not in wanted)
        for each in self._backwards.values():
            each.reads &= {*wanted, *held}
        self._leave_all_but({*wanted, *held})
        for unit in self._readable:
            if unit not in wanted and unit not in held:
                self.binding.complete(unit)
        try:
            self.core.visit(wanted, held)
        except BaseException:
            self._leave_all_but(set())
            self._readable = ()
            raise
        self._readable = (*wanted, *held)
        for unit in wanted:
            if unit not in self._bound:
                self.binding.bind(unit)
                self._bound.add(unit)

    def _leave_all_but(self, kept: set[int]) -> None:
        for unit in self._bound - kept:
            self.binding.release(unit)
            self._bound.discard(unit)

    def _needed(self) -> set[int]:
        return {*self._outside, *self._read_late(), *_reads(self.open)}

    def _foretell(self) -> None:
        """Once backward begins the rest is known, whatever the model did this time."""
        if self._in_order or self.kind != "training":
            return
        self._in_order = True
        if self._forward and self._forward != self._last_forward:
            self.core.expect("training", reversed(self._forward))
        if self.beginning():
            self.binding.begin_completing()

    def _backward_ended(self, task: int) -> None:
        self._backwards.pop(task, None)
        self._backwards.pop(NONE, None)
        if not self._backwards and not self.open:
            self._region = Region()
            if self._outside:
                self._leave_all_but(self._needed())  # a graph may still have what was read outside: until the step
            else:
                self.end()


def _writes(operation: str) -> bool:
    """In place: `add_`, `__iadd__`, `__setitem__`."""
    if operation.startswith("__"):
        return operation in IN_PLACE
    return operation.endswith("_")


def _reads(calls: Iterable[Call]) -> Iterable[int]:
    return (unit for each in calls for unit in each.reads)


def _backward() -> int:
    """Which is running on this thread; within another's nodes it is one of its own."""
    return torch._C._current_graph_task_id()


def in_backward() -> bool:
    return _backward() != NONE
