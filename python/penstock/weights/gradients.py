"""The gradients of a model: autograd's go to the core's sums as they come, and each parameter's `grad` is its sum."""
from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from typing import cast

import torch
from torch import nn

from ..errors import ModelError, UsageError
from .addends import Addends, Place
from .bits import AsTheyWere
from .held_gradients import Assigned, ReadSum
from .nested import is_nested
from .parameter import raw_gradient
from .places import Places
from .running import Running

# Those that update units within backward.
ORDERS = "Store(update_order='within') (run.update_order)"

TAKEN = ("torch would go on with it, here a step takes gradients. Say optimizer.zero_grad(), model.zero_grad() or parameter.grad = "
         "None after each step, or engine.step(), which does both")


class Gradients:
    """Owned by the binding. One caller at a time."""

    def __init__(self, places: Places, running: Running) -> None:
        self._places, self._core, self._running = places, places.core, running
        self.fed: set[Place] = set()  # parameters that a gradient has come to since the last update
        self.addends = Addends()
        self._had: set[Place] = set()  # and before, since it was set to None
        self._zeros: set[Place] = set()  # whose gradient is zeros until one comes, which the core does not know yet
        self.completing = False  # units are updated as soon as all their gradients of this backward are there
        self.completed: set[int] = set()
        self._begins: Callable[[], bool] | None = None  # of the backward that has given no gradient yet
        self._read: dict[Place, ReadSum] = {}  # sums that the program has read, and may have kept
        self._assigned: dict[Place, Assigned] = {}  # the program's own tensors, which are `grad` as long as it has them
        self._shared: dict[Place, tuple[torch.Tensor, AsTheyWere]] = {}  # which were assigned another parameter's gradient
        self.steps_alone = False  # the newest update was optimizer.step(), which in torch leaves gradients as they are
        self.spoiled: str | None = None  # why the step that was begun cannot be made
        self._scaled = False  # the engine divides and scales the losses whose gradients come
        self.unscaled = False  # of those that are there one has come by another backward
        self._came: dict[int, set[int]] = {}  # by unit: parameters with a gradient of this backward
        self._task, self._nested = -1, False  # the newest backward that gave a gradient, and whether it was in another
        self._within: dict[int, set[int]] = {}  # by unit: the backwards within another that gave gradients
        self.calls: Counter[int] = Counter()  # by unit: those of forwards since the last update

    def forget(self) -> None:
        """The model is that of another step."""
        self._had.clear()
        self._zeros.clear()
        self._assigned.clear()
        self._shared.clear()
        self.forbid_kept()
        self.end_completing()

    # A step.
    def expect_scaled(self, by_engine: bool = True) -> None:
        """The losses whose gradients come are divided and scaled `by_engine`, or by nobody."""
        self._scaled = by_engine

    @contextlib.contextmanager
    def scaled(self) -> Iterator[None]:
        """The same, of those that come within."""
        before, self._scaled = self._scaled, True
        try:
            yield
        finally:
            self._scaled = before

    def step_alone(self) -> None:
        """optimizer.step() takes them, which in torch leaves them as they are. Raises UsageError for a second one with the same
        gradients."""
        if self.steps_alone and not self.fed and not self._zeros and self._had - self._assigned.keys():
            raise UsageError(f"optimizer.step() a second time without a gradient since the first: {TAKEN}")
        self.steps_alone = True

    def step_by_engine(self) -> None:
        """engine.step() takes them, which zeroes them."""
        self.steps_alone = False

    # One whose units are updated within backward.
    def expect_backward(self, begins: Callable[[], bool]) -> None:
        """`begins` is asked when it gives its first gradient: whether such a step begins."""
        self._begins = begins
        if self._core.over_ranks:
            self._begin_anew()

    def begin_completing(self) -> None:
        self.completing = True
        self._came.clear()

    def complete(self, unit: int) -> None:
        """If it has all its gradients: none comes to a parameter that is frozen for now. REQUIRES: the core's last
        visit has it; it is released, or will be no more read."""
        came = self._came.get(unit)
        if not self.completing or unit in self.completed or not came:
            return
        if not came.issuperset(self._places.awaited(unit)):
            return
        if unit in self._within and len(self._within[unit]) < self.calls[unit]:  # a checkpoint has one for each call
            return
        self.settle(unit)
        self.add_zeros(unit)
        self._core.complete(unit)
        self.forbid_kept({each for each in self._read if each[0] == unit})
        self.completed.add(unit)

    def give_up_completing(self) -> None:
        """No further unit is updated; those that were are so until the step ends."""
        self.completing = False

    def end_completing(self) -> None:
        """The step is updated, or given up."""
        self.completing, self.spoiled = False, None
        self.completed.clear()
        self._within.clear()

    def taken(self) -> None:
        """By a step, whatever came of it."""
        self.unscaled = False
        self._had |= self.fed
        kept = self._assigned if self.steps_alone else {}
        self._assigned = {place: Assigned(each.tensor, changed=True) for place, each in kept.items() if each.is_held()}
        self._zeros.clear()
        self._shared.clear()
        self.calls.clear()
        self.fed.clear()
        self.forbid_kept()

    def settle(self, unit: int | None = None) -> None:
        """What the program did to its own tensors, and to the data of what it has read, is in the sums. Raises UsageError
        where a parameter has another one's gradient, which has changed since."""
        for place, (other, came) in self._shared.items():
            if (unit is None or place[0] == unit) and came.differ_from(other):
                raise UsageError(f"'{self._name_at(place)}'.grad was assigned the gradient of another parameter, which has changed "
                                 "since: in torch both are one tensor, here it is a copy. Assign it once it is whole, or as a "
                                 "copy, .clone()")
        for place, read in self._read.items():
            if (unit is None or place[0] == unit) and read.was_replaced():
                self._assigned[place] = Assigned(read.seen, changed=True)
        for place, each in self._assigned.items():
            if (unit is None or place[0] == unit) and each.has_changed():
                self._replace(place, each.tensor)

    def places_with_one(self) -> set[Place]:
        """In torch these would have a gradient of the last step still."""
        return self._had | self._zeros

    def clear_of(self, parameters: Iterable[nn.Parameter], before: Set[Place], to_zeros: bool) -> None:
        """As a module's zero_grad() leaves them, of its parameters that had one `before`."""
        for parameter in parameters:
            place = self._places.places.get(parameter)
            if place is not None and place in before:
                self._had.discard(place)
                (self._zeros.add if to_zeros else self._zeros.discard)(place)

    def forbid_kept(self, places: Set[Place] | None = None) -> None:
        """The core has taken the sums, all or these: whoever still has one as it was read must not read it."""
        for place in list(self._read) if places is None else self._read.keys() & places:
            self._read.pop(place).forbid(
                f"a tensor is read that was '{self._name_at(place)}'.grad until a step, zero_grad(), an assignment or, over "
                "several processes, a further backward: its memory was lent until then. Keep a copy, .grad.clone()")

    def clear(self, to_zeros: bool) -> None:
        """All are None; or, as torch's zero_grad(set_to_none=False) leaves them, zeros where there was one since they
        were None, with which the next update goes on: decay and moments, also of what is frozen by then."""
        self._zeros = self._had | self.fed | self._zeros if to_zeros else set()
        if to_zeros:
            for place, each in self._assigned.items():
                each.tensor.zero_()
                self._zeros.discard(place)
        else:
            self._assigned.clear()
        self._had.clear()
        self._shared.clear()
        self._core.clear_gradients()
        self.forbid_kept()
        self.fed.clear()

    def add_zeros(self, unit: int | None = None) -> None:
        """Where nothing has come to what has a gradient of zeros, the core has them from now on."""
        for place in sorted(self._zeros - self.fed):
            if unit is None or place[0] == unit:
                self._core.open_gradient(*place).memory.zero_()
                self.fed.add(place)

    # Of one parameter.
    def of(self, parameter: nn.Parameter) -> torch.Tensor | None:
        self._check_gradient(parameter, "is read or changed")
        raw = raw_gradient.__get__(parameter)
        if raw is not None:
            return cast(torch.Tensor, raw)  # of a frozen one that was told to require a gradient; check() says so
        if not self._places.learns(parameter):
            return None
        self._check_whole(parameter)
        place = self._places.places[parameter]
        if place in self._zeros and place not in self.fed:
            self._add_zeros(place)
        if place in self._assigned:
            return self._assigned[place].tensor
        if place not in self._read:
            total = self._sum_of(parameter)  # also of one that is frozen for now: what came before is there
            if total is None:
                self._had.discard(place)  # whoever zeroes gradients passes over it now
                return None
            self._read[place] = ReadSum(total, parameter.shape)
        return self._read[place].seen

    def put(self, parameter: nn.Parameter, value: torch.Tensor | None) -> None:
        self._check_gradient(parameter, "is set")
        place = self._places.places[parameter]
        raw_gradient.__set__(parameter, None)
        if not self._places.learns(parameter):
            if value is not None:
                raise ModelError(f"a gradient of '{self._name(parameter)}' is set, "
                                 + self._places.never_trained([parameter]))
            return
        self._check_whole(parameter)
        if place in self._assigned and self._assigned[place].tensor is value:
            return  # x.grad = x.grad
        self._had.discard(place)
        self._zeros.discard(place)
        self._assigned.pop(place, None)
        self._shared.pop(place, None)
        if value is None:
            self._core.clear_gradient(*place)
            self.forbid_kept({place})
            self.fed.discard(place)
            return
        if value.shape != parameter.shape:
            raise ModelError(f"gradient of shape {tuple(value.shape)} for '{self._name(parameter)}' "
                             f"of shape {tuple(parameter.shape)}")
        present = self._sum_of(parameter)
        if present is not None and present.data_ptr() == value.data_ptr():
            return  # x.grad = x.grad
        if value.layout is torch.strided and not any(each.shares_memory_with(value) for each in self._read.values()):
            self._assigned[place] = Assigned(value)
        elif value.layout is torch.strided:
            self._shared[place] = value, AsTheyWere(value)
        value = value.clone()
        self._core.clear_gradient(*place)
        self.forbid_kept({place})
        if self._core.over_ranks:
            return self._replace(place, value)
        self._sum(place, value)

    def take(self, parameter: nn.Parameter) -> None:
        """Autograd has summed this backward's gradient of it: it goes to the core's sum."""
        gradient = raw_gradient.__get__(parameter)
        raw_gradient.__set__(parameter, None)
        if gradient is not None:
            place = parameter.penstock_place  # type: ignore[attr-defined]
            self._running.gradient_came()
            self.unscaled = not self._scaled or self.unscaled and bool(self.fed)
            if gradient.requires_grad:
                raise UsageError(f"backward(create_graph=True): the gradient that came to '{self._name(parameter)}' has a graph, "
                                 "which its `grad` cannot have. Gradients that are differentiated again are given by "
                                 "torch.autograd.grad(loss, parameters, create_graph=True), of inputs and of weights")
            if self._begins is not None:
                begins, self._begins = self._begins, None
                if begins():
                    self.begin_completing()
            if place[0] in self.completed:
                self.spoiled = (f"a gradient came to '{self._name(parameter)}', whose unit is updated: with "
                                f"{ORDERS} a step has one backward, or as many as gradient_accumulation_steps says, "
                                "with engine.step() behind each; say Store(update_order='deferred') else. The step "
                                "cannot be made")
                raise UsageError(self.spoiled)
            self._add(place, gradient)
            if self.completing:
                self._came.setdefault(place[0], set()).add(place[1])
                if self._is_nested():
                    self._within.setdefault(place[0], set()).add(self._task)

    def check_read(self, parameter: nn.Parameter, operation: str) -> None:
        """Raises UsageError where a weight that is read before the step's end would be that of the next step."""
        self._check_not_updated(parameter, f"parameter '{self._name(parameter)}' is read by '{operation}'",
                                ": it would be the next step's; say Store(update_order='deferred')")

    def check_called(self, reads: Iterable[int], name: str) -> None:
        """The same, of what a unit reads that is called within backward."""
        for unit in self.completed.intersection(reads):
            self._check_not_updated(self._places.parameters[unit][0], f"unit '{name}' is read by a call of it within backward",
                                    ": it would have the next step's weights; say Store(update_order='deferred')")

    # Private.
    def _is_nested(self) -> bool:
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task, self._nested = task, is_nested()
        return self._nested

    def _name(self, parameter: nn.Parameter) -> str:
        return self._places.names[parameter]

    def _name_at(self, place: Place) -> str:
        return self._name(self._places.parameters[place[0]][place[1]])

    def _check_whole(self, parameter: nn.Parameter) -> None:
        if self._core.over_ranks and torch._C._current_graph_task_id() != -1:
            raise UsageError(f"'{self._name(parameter)}'.grad is read or set within backward: over several processes it is the mean over "
                             "them, which is there behind it. A hook of register_hook() is given this process's own gradient")

    def _replace(self, place: Place, value: torch.Tensor) -> None:
        """By what the program has put in its place; over several processes each has its own, whose shard of it counts."""
        total = self._core.make_gradient(*place) if self._core.over_ranks else self._core.open_gradient(*place).memory
        total.view(value.shape).copy_(value.to_dense() if value.is_sparse else value)
        self.fed.add(place)

    def _begin_anew(self) -> None:
        """Over several processes: this one's own gradients come, where the mean lies that was read or assigned."""
        self.settle()
        held = next((place for place, each in self._assigned.items() if each.is_held()), None)
        if held is not None:
            raise UsageError(f"a backward comes while '{self._name_at(held)}'.grad is a tensor that the program has assigned and still "
                             "has: in torch gradients would be added to that. Over several processes `grad` is a sum of the "
                             "engine's: assign behind the last backward(), or copy into it, .grad.copy_(values)")
        self._assigned.clear()
        self.forbid_kept()

    def _add_zeros(self, place: Place) -> None:
        if self._core.over_ranks:
            self._core.make_gradient(*place)
        else:
            self._core.open_gradient(*place).memory.zero_()
        self.fed.add(place)

    def _check_gradient(self, parameter: nn.Parameter, done: str) -> None:
        self._check_not_updated(parameter, f"the gradient of '{self._name(parameter)}' {done}",
                                ". To clip, say gradient_clipping (clip_grad_norm_ comes too late); to look at "
                                "gradients, say Store(update_order='deferred')")

    def _check_not_updated(self, parameter: nn.Parameter, what: str, instead: str) -> None:
        if self._places.places[parameter][0] in self.completed:
            raise UsageError(f"{what} after its unit was updated, as {ORDERS} does within backward{instead}")

    def _sum_of(self, parameter: nn.Parameter) -> torch.Tensor | None:
        try:
            return self._core.gradient(*self._places.places[parameter])
        except UsageError as error:
            if not self._core.gradients_leave:
                raise
            raise UsageError(f"'{self._name(parameter)}'.grad is not there to be read or replaced: {error}. That is "
                             "Store(gradients='cpu'); to clip, say gradient_clipping") from error

    def _add(self, place: Place, gradient: torch.Tensor) -> None:
        if self.steps_alone and place in self._had and place not in self._zeros and place not in self._assigned:
            raise UsageError(f"a gradient came to '{self._name_at(place)}', whose last one was not zeroed after "
                             f"optimizer.step(): {TAKEN}")
        if self._core.over_ranks and (self._assigned or self._read):  # by a backward that has come to no unit
            self._begin_anew()
        assigned = self._assigned.get(place)
        if assigned is not None:
            with torch.no_grad():
                assigned.tensor.add_(gradient)
            assigned.counts_as_changed()
        self._sum(place, gradient)

    def _sum(self, place: Place, gradient: torch.Tensor) -> None:
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        total, fresh = self._core.open_gradient(*place)
        if not fresh:
            total.add_(gradient)
        elif place in self._zeros:
            total.zero_().add_(gradient)  # 0 + -0 is 0
        else:
            total.copy_(gradient)
        self.addends.came(place, total.dtype, fresh)
        self.fed.add(place)
