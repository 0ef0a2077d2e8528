"""The parameters of a model, bound to a core's memory while it is there and released while it is not."""
from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..core import Core, What
from ..errors import ModelError, UsageError, some
from ..machine import heap
from ..units import Unit
from .addends import Place
from .bits import same_bits
from .given_out import GivenOut
from .gradients import Gradients
from .handed import Handed
from .lent import Lent, forbids
from .loans import Loans
from .memory import Memory
from .nothing import Nothing
from .overlap import memory_of_sparse
from .parameter import Borrowed, Managed, Released, raw_data, raw_gradient, values_of
from .places import Places
from .running import Running
from .structure import is_functional_call, structure_of
from .taken import Taken
from .weight_view import WeightView

LENT = -1  # in the place of a unit: copies of weights that stand in for them
PLAIN = (torch.Tensor, nn.Parameter, Managed, Borrowed, Released)


def view_was_kept(name: str) -> str:
    return (f"parameter '{name}' is read by a view of it (.t(), .data, detach(), a part of it) that was taken in a call of its "
            "unit, and kept: its memory was lent until that call returned. Keep a copy, .detach().clone(), read the weight anew "
            "where it is needed, or keep the unit in memory, penstock.initialize(resident=[...])")


class Binding(Places):
    """Owned by the engine; one caller at a time. From construction on the parameters' values are the core's."""

    def __init__(self, model: nn.Module, units: list[Unit], core: Core, tell: Callable[[str], None] = lambda _: None
                 ) -> None:
        super().__init__(model, units, core)
        self._tell = tell
        self.running = Running()
        self.loans, self.gradients = Loans(self), Gradients(self, self.running)
        self.given_out = GivenOut(self.names, self.loans)
        self.resident: set[int] = set()
        self.large: set[int] = set()  # whose gradients are, in the host's heap
        self.gathering = False  # a state_dict() is made: it detaches what is replaced right after
        self._memory: dict[tuple[int, Hashable], Memory] = {}
        self.low, self.high = 1 << 63, 0  # all weights that were ever bound lie between these addresses
        self._there: dict[int, Memory] = {}  # of the units that are bound
        self._held: list[tuple[int, Lent]] = []  # of units that were released while somebody had a view of it
        self._whole: dict[Place, WeightView] = {}
        self._states: Counter[Place] = Counter()  # how often its values became others
        self._written: Counter[int] = Counter()  # the same, by unit
        self.handed = Handed(lambda each: self.names[each])
        self.taken = Taken(self._is_written_unseen, self.is_held)
        self._unbound: list[list[tuple[nn.Parameter, torch.Tensor]]] = []  # as parameters
        self._versions: list[list[int]] = []  # as parameters: torch counts what is done to them in place
        self._changed: dict[str, None] = {}  # parameters that were changed in place while they were there
        self._released: dict[nn.Parameter, torch.Tensor] = {}
        self._first: dict[nn.Parameter, Any] = {}  # handles of the hooks that take gradients
        nothing = Nothing(max((each.nbytes for each in self.places), default=0), core.device)
        for unit in units:
            if unit.index is not None:
                self._adopt(unit, nothing)
        self._structure = structure_of(model)
        self._beside: list[tuple[str, nn.Parameter]] = []  # frozen ones that were added since, in torch's memory
        self._without_states = [each for each in self.places if not self.learns(each)]

    def gather(self, begins: bool) -> None:
        """A state_dict() is made of a module with parameters, or is no more."""
        self.gathering = begins

    # Memory.
    def bind(self, unit: int) -> None:
        """The unit's parameters are the core's memory. REQUIRES: it is readable."""
        key = (unit, self.core.where(unit))
        memory = self._memory.get(key)
        if memory is None:  # a window has few places, and passes of one order find a unit in few of them
            memory = Memory([(each, self.core.weights(unit, index).view(each.shape))
                             for index, each in enumerate(self.parameters[unit])])
            self._memory[key] = memory
            self._spans(memory)
        self._there[unit] = memory
        for parameter, values in memory.bound:
            parameter.__class__ = Managed
            raw_data.__set__(parameter, values)

    def give_copies(self, unit: int) -> None:
        """In the place of the core's memory, until it is released; whoever has them keeps them. REQUIRES: it is bound."""
        there = self._there[unit]
        memory = Memory([(each, values.clone()) for each, values in there.bound], stands_in_for=there)
        self._there[unit] = memory
        self._spans(memory)
        for parameter, values in memory.bound:
            raw_data.__set__(parameter, values)

    def release(self, unit: int) -> None:
        memory = self._there.pop(unit, None)
        versions = self._versions[unit]
        for index, (parameter, nothing) in enumerate(self._unbound[unit]):
            if parameter._version != versions[index]:
                versions[index] = parameter._version
                self._changed[self.names[parameter]] = None
            raw_data.__set__(parameter, nothing)
            parameter.__class__ = Released
        if memory is not None and memory.lent.is_held():
            self._held.append((unit, memory.lent))

    def forbid_views(self) -> None:
        """Of weights that went: whoever still has one must not read it. REQUIRES: their memory is not yet that of others."""
        while self._held:
            unit, lent = self._held.pop()
            there = self._there.get(unit)
            held = lent.held() if there is None or there.lent is not lent else ()
            if held and forbids is None:
                gc.collect()
                held = lent.held()
                if held:
                    raise ModelError(view_was_kept(self.names[self.parameters[unit][held[0]]]))
            for at in held:
                lent.forbid(at, view_was_kept(self.names[self.parameters[unit][at]]))
            if held:
                self._memory = {key: each for key, each in self._memory.items() if each.lent is not lent}

    def invalidate(self, unit: int) -> None:
        """A graph that still has its parameters must not use them. REQUIRES: it is released."""
        for index, parameter in enumerate(self.parameters[unit]):
            torch.autograd.graph.increment_version(parameter)
            self._versions[unit][index] = parameter._version

    def lend_copies(self, copies: list[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """These stand in for what is released, until take_copies_back()."""
        self._there[LENT] = Memory(copies)
        self._spans(self._there[LENT])
        for parameter, values in copies:
            parameter.__class__ = Managed
            raw_data.__set__(parameter, values)

    def take_copies_back(self, copies: list[tuple[nn.Parameter, torch.Tensor]]) -> None:
        self._there.pop(LENT, None)
        for parameter, _ in copies:
            if type(parameter) is Managed:
                raw_data.__set__(parameter, self._released[parameter])
                parameter.__class__ = Released

    def view_of(self, tensor: torch.Tensor) -> WeightView | None:
        """How a tensor is seen in the memory of a weight; None where it is other memory."""
        if tensor.layout is not torch.strided or type(tensor) not in PLAIN or tensor.is_nested or tensor.is_conj() or (
                tensor.is_neg()):
            return None
        found = self.weight_at(tensor)
        return None if found is None else WeightView(*found, tensor, self.state_of(found[0]))

    def may_lie_in_weights(self, tensor: torch.Tensor) -> bool:
        """It has memory of a weight, also where view_of() cannot say how; or nobody can say whether it has."""
        if type(tensor) not in PLAIN or tensor.is_nested:
            return True
        if tensor.layout is not torch.strided:
            values = memory_of_sparse(tensor)
            return values is None or self.weight_at(values) is not None
        return self.weight_at(tensor) is not None

    def weight_at(self, tensor: torch.Tensor) -> tuple[nn.Parameter, int] | None:
        """The parameter in whose memory a tensor begins, and at which byte of it; None where it is other memory."""
        try:
            address = tensor.data_ptr()
        except RuntimeError:  # torch.func's have no memory of their own
            return None
        if tensor.numel() > 0 and self.low <= address < self.high:
            for memory in self._there.values():
                found = memory.parameter_at(address)
                if found is not None:
                    return found
        return None

    def state_of(self, parameter: nn.Parameter) -> int:
        """Another one after its values were updated or written."""
        return self._states[parameter.penstock_place]  # type: ignore[attr-defined]

    @staticmethod
    def place_of(parameter: nn.Parameter) -> Place:
        """As `places`, without the hash of a tensor, which takes a microsecond. REQUIRES: it is managed."""
        return parameter.penstock_place  # type: ignore[attr-defined, no-any-return]

    def whole(self, parameter: nn.Parameter) -> WeightView:
        """The view of all of it. REQUIRES: it is managed."""
        place = parameter.penstock_place  # type: ignore[attr-defined]
        view = self._whole.get(place)
        if view is None or view.state != self._states[place]:
            view = self._whole[place] = WeightView(parameter, 0, parameter, self._states[place])
        return view

    def values_of(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """Its memory, where that is lent now."""
        unit, index = parameter.penstock_place  # type: ignore[attr-defined]
        memory = self._there.get(unit)
        return None if memory is None else memory.bound[index][1]

    def written_of(self, units: Iterable[int]) -> list[int]:
        """Another list after values of one of them were updated or written."""
        return [self._written[unit] for unit in units]

    def updated(self) -> None:
        """So were those that a gradient has come to: whoever has a tensor that stands for one has what torch would have
        changed, too. A graph of torch's own may have those that stay at one place."""
        self.loans.weights_change()
        self.handed.forbid(lambda each: self.places[each] in self.gradients.fed)
        self._states.update(self.gradients.fed)
        for unit in {unit for unit, _ in self.gradients.fed}:
            self._written[unit] += 1
        for unit in self.resident:
            self.invalidate(unit)
        self.taken.look_again()

    def lend(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Memory of the caller's stands in, until give_back(). REQUIRES: no pass."""
        parameter.__class__ = Managed
        with torch.inference_mode(False):
            raw_data.__set__(parameter, values.to(self.core.device))

    def give_back(self, parameter: nn.Parameter) -> None:
        unit, index = self.places[parameter]
        self._versions[unit][index] = parameter._version
        if unit in self.resident:
            raw_data.__set__(parameter, self.core.weights(unit, index).view(parameter.shape))
            parameter.__class__ = Managed
        else:
            raw_data.__set__(parameter, self._released[parameter])
            parameter.__class__ = Released

    def take_residents(self) -> None:
        """What was changed in their memory between passes, or without gradients; the store would not see it."""
        if not self.running.between_passes:
            return self.look_at_residents()
        for parameter in self._changed_residents():
            self.loans.put(parameter, values_of(parameter))
        self.taken.look_again()

    def look_at_residents(self) -> None:
        """A pass with gradients has ended: a recompute would have changed them twice."""
        self._changed.update((self.names[each], None) for each in self._changed_residents())

    def go_back(self, path: str) -> Mapping[str, str]:
        """The model is that of a snapshot, at other addresses. REQUIRES: no pass."""
        self.loans.forget()
        self._memory.clear()
        self._states.update(self.places.values())
        self._written.update(range(len(self.parameters)))
        self.gradients.forget()
        for unit in self.resident:
            self.release(unit)
        try:
            return self.core.go_back(path)
        finally:
            for unit in self.resident:
                self.bind(unit)

    def all_values(self) -> dict[nn.Parameter, torch.Tensor]:
        """Copies of all weights, where the model computes. REQUIRES: no pass. Raises FitError."""
        self.loans.check_room(sum(each.nbytes for each in self.places), "the model with its weights in memory")
        return {each: self.read(each).to(self.core.device) for each in self.places}

    def disown(self, values: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Parameters are torch's own again, with these in their memory."""
        for parameter, each in values.items():
            if parameter in self._first:
                self._first.pop(parameter).remove()
            raw_gradient.__set__(parameter, None)
            parameter.__class__ = nn.Parameter
            del parameter.penstock_keeper, parameter.penstock_place  # type: ignore[attr-defined]
            raw_data.__set__(parameter, each)

    def read(self, parameter: nn.Parameter, what: What = "weight") -> torch.Tensor:
        """A copy of its weight, or of what else there is of it. REQUIRES: no pass."""
        self.check_no_step(parameter, "read")
        with torch.inference_mode(False):  # else its changes in place would not be counted
            return self.core.read(*self.places[parameter], what).view(parameter.shape)

    def write(self, parameter: nn.Parameter, values: torch.Tensor, what: What = "weight") -> None:
        """It becomes these values, if they differ in bits: else a master would lose its lower ones by its weight."""
        self.check_no_step(parameter, "changed")
        present = self.read(parameter, what)
        if not same_bits(present, values.detach().to("cpu", present.dtype)):
            self.core.write(*self.places[parameter], what, values.detach().reshape(-1))
            self.written(parameter)

    def written(self, parameter: nn.Parameter) -> None:
        self._states[self.places[parameter]] += 1
        self._written[self.places[parameter][0]] += 1
        self.taken.look_again([parameter])

    def check_not_held(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Raises ModelError where somebody has a view of a resident's memory, which is about to become these values."""
        own = values.layout is torch.strided and values.untyped_storage()._cdata == parameter.untyped_storage()._cdata
        if self.places[parameter][0] in self.resident and not own and self.is_held(parameter):
            raise ModelError(f"'{self.names[parameter]}'.data, which stays in memory, is assigned while the program has an "
                             "earlier .data or view of it, whose values would change: keep a copy, .data.clone()")

    def check_no_step(self, parameter: nn.Parameter, done: str) -> None:
        if self.core.begun is not None:
            raise UsageError(f"parameter '{self.names[parameter]}' was {done} while step {self.core.begun} is under "
                             "way, whose units are updated within backward: do so after engine.step(), or say "
                             "Store(update_order='deferred')")

    def look_whether_there(self, parameter: Managed) -> None:
        """See parameter.Keeper."""
        unit, _ = self.places[parameter]
        if unit not in self._there and unit not in self.resident:
            parameter.__class__ = Released

    # The model as it was given.
    def check(self) -> None:
        """Raises ModelError when the model is no longer the one that is managed."""
        self.loans.settle()
        self.loans.check_aliases()
        if not self._structure.are_same():
            self._check_structure()
        self._check_trainable()

    # Private.
    def _check_structure(self) -> None:
        if is_functional_call():
            return  # it takes back what it has put in
        now = dict(self.model.named_parameters())
        new = [(name, each) for name, each in now.items() if each not in self.places]
        gone = [name for each, name in self.names.items() if now.get(name) is not each]
        self._check_beside(new if gone else [each for each in new if each[1].requires_grad])
        if gone:
            what = "removed" if len(now) < len(self.places) else "renamed"
            raise ModelError(f"parameters {some(gone)} were {what} after penstock.initialize(); "
                             "change the model first, initialize then")
        if new:
            self._tell(f"parameters {some(name for name, _ in new)} were added after penstock.initialize() and are frozen: they "
                       "stay in torch's memory, and no commit has them")
        self._beside, self._structure = new, structure_of(self.model)

    @staticmethod
    def _check_beside(refused: list[tuple[str, nn.Parameter]]) -> None:
        if refused:
            raise ModelError(f"parameters {some(name for name, _ in refused)} were added or replaced after "
                             "penstock.initialize(): nothing manages them; change the model first, initialize then")

    def _check_trainable(self) -> None:
        if not torch.is_grad_enabled():
            return  # one that is switched for this forward alone asks for nothing
        if self._beside:
            self._check_beside([each for each in self._beside if each[1].requires_grad])
        with torch._C.DisableTorchFunctionSubclass():
            asked = [each for each in self._without_states
                     if each.requires_grad or raw_gradient.__get__(each) is not None]
        if asked:
            raise ModelError(f"parameters {some(self.names[each] for each in asked)} require a gradient now, "
                             + self.never_trained(asked))

    def check_unchanged(self) -> None:
        """Raises ModelError when a weight was changed where the store does not see it."""
        if self._changed:
            changed, self._changed = list(self._changed), {}
            raise ModelError(f"parameters {some(changed)} were changed in place while a forward or backward ran, or, of units "
                             "that stay in memory, between a forward and its step: what was written is lost, because weights "
                             "go back to the store by updates alone. Change them between a step and the next forward, by "
                             "engine.set_weight(), or within engine.gathered(..., modify=True)")

    def is_held(self, parameter: nn.Parameter) -> bool:
        """Somebody has a view of its memory. REQUIRES: it is resident."""
        unit, index = self.places[parameter]
        return unit in self._there and index in self._there[unit].lent.held(known=1)  # the parameter's

    def _is_written_unseen(self, parameter: nn.Parameter) -> bool:
        """Within a pass nobody does that to a weight; of those that are not resident the program has copies."""
        resident = parameter.penstock_place[0] in self.resident  # type: ignore[attr-defined]
        return resident and not self.gathering and self.running.between_passes and not self.loans.is_lent(parameter)

    def _changed_residents(self) -> Iterator[nn.Parameter]:
        """Each change once."""
        for unit in self.resident:
            versions = self._versions[unit]
            for index, parameter in enumerate(self.parameters[unit]):
                changed = parameter._version != versions[index] or self.taken.was_written(parameter)
                if changed and not self.loans.is_lent(parameter):
                    versions[index] = parameter._version
                    yield parameter

    def _spans(self, memory: Memory) -> None:
        self.low, self.high = min(self.low, memory.begin), max(self.high, memory.end)

    def _adopt(self, unit: Unit, nothing: Nothing) -> None:
        assert unit.index is not None
        parameters = self.parameters[unit.index]
        before = [Lent([each.data]) for each in parameters]
        specs = self.core.units[unit.index].parameters
        for index, parameter in enumerate(parameters):
            self._released[parameter] = nothing.like(parameter, self.names[parameter])
            raw_gradient.__set__(parameter, None)
            if specs[index].trainable:
                self._take_first(parameter)
            parameter.penstock_place = (unit.index, index)  # type: ignore[attr-defined]
        self._unbound.append([(each, self._released[each]) for each in parameters])
        self._versions.append([each._version for each in parameters])
        gradients_bytes = sum(each.nbytes for _, each in self._learning[unit.index])
        if self.core.device.type == "cpu" and gradients_bytes >= heap.LARGE_BYTES:  # a GPU's are in no heap of the host
            self.large.add(unit.index)
        if unit.resident:
            self.resident.add(unit.index)
            self.bind(unit.index)
        else:
            self.release(unit.index)
        for parameter, own in zip(parameters, before):
            if own.bytes == parameter.nbytes and own.outlives():
                own.forbid(0, f"the memory is read that parameter '{self.names[parameter]}' had before penstock.initialize(), "
                              "by a tensor that was made of it then (.data, detach(), a view, state_dict()): in torch that "
                              "follows the weight, here it would not. Read the parameter, or let it be a copy, "
                              ".detach().clone()")

    def _take_first(self, parameter: nn.Parameter) -> None:
        """Before the user's hooks, so that they see the sum as `grad`. Autograd goes by the order of insertion."""
        requires = parameter.requires_grad
        parameter.requires_grad_()  # torch takes no hook of one that is frozen, and keeps it when it is frozen again
        # The garbage collector sees the keeper, but not what hooks refer to.
        own = parameter.register_post_accumulate_grad_hook(lambda each: each.penstock_keeper.gradients.take(each))
        self._first[parameter] = own
        parameter.requires_grad_(requires)
        hooks = parameter._post_accumulate_grad_hooks
        *others, last = hooks.items()
        hooks.clear()
        hooks.update([last, *others])
