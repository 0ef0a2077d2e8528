"""One call of a unit, whose graph is kept from forward to backward, and can be given up: then a recompute fills it again.

What a node saves is held by this call's holders. Of weights it is which one and how it was seen, because they come and go;
of all else the tensor, without its graph. The first node that runs in a backward brings the unit. A call is KEPT (its
holders have tensors) or given up (they say what must come again); what its graph saved has it, so it lives as long.
"""
from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules import module as modules

from ..errors import UsageError
from ..units import Unit
from ..weights.parameter import Managed
from ..weights.running import Call
from ..weights.weight_view import WeightView
from .activations import Activations
from .arguments import Arguments
from .leaves import leaves_of
from .output import Seen
from .saved_hooks import TakesWeightsOut
from .shelf import Shelf
from .surroundings import AsItWas, Surroundings
from .visits import Visits

Tensor = torch.Tensor
FIRST = 3  # calls of a unit in which changes are looked for that torch does not count
FORWARD = "it is differentiated forward, whose tangents cannot be put back"


class CalledUnit(Protocol):
    """What a call has of its unit: unit_call.UnitCall."""

    unit: Unit
    module: nn.Module
    visits: Visits
    policy: Activations
    devices: tuple[str, ...]
    changes_arguments: bool
    copied: frozenset[int]
    finished: int
    looked_at: int

    def call_ended(self, changes_arguments: bool, copied: set[int]) -> None: ...

    def recompute_looked_at(self) -> None: ...

    def run(self, args: Any, kwargs: Any) -> Any: ...

    def surroundings(self) -> Surroundings: ...

    def require_gradients(self) -> list[bool]: ...

    def require(self, flags: list[bool]) -> None: ...

    def recompute(self, call: KeptCall) -> None: ...


class Held:
    """A saved tensor. `tensor` None: its call is given up, and `like` says what must come again."""

    __slots__ = ("tensor", "version", "like", "__weakref__")

    tensor: torch.Tensor | None
    version: int
    like: tuple[Any, ...]

    def fill(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor.detach(), tensor._version


class KeptCall(Call, TakesWeightsOut):
    """`why_never`: why its recompute could not be exact. `children` are the calls of units that were made within it: what
    is given up is a whole call with them."""

    def __init__(self, unit: CalledUnit, parent: Call | None, args: Any, kwargs: Any) -> None:
        super().__init__(unit.unit.name, unit.unit.reads, parent)
        self.unit, self.lender = unit, unit.visits
        self._binding = unit.visits.binding
        self.random = unit.policy.random.now()
        self.around = AsItWas(unit.surroundings(), bits=unit.finished < FIRST)
        self.arguments: Arguments | None = Arguments(args, kwargs, self.weight_of, unit.changes_arguments)
        self.autocast = _autocast(unit.devices)
        self.required = unit.require_gradients()
        self.written: list[int] = []  # how often its weights were, when its visit began
        self.holders: list[weakref.ref[Held]] = []
        self.weights = 0  # how many were saved
        self.bytes = 0  # of what it saved: one that was saved twice counts twice, until close()
        self.children: list[weakref.ref[KeptCall]] = []
        self.running, self.given_up = True, False
        self.learned = False  # what its unit changes in place: from the next call on that is copied
        self.lost_with: KeptCall | None = None  # it was given up as a part of that one
        self.why_never: str | None = self.arguments.why_not
        self.seen: Seen | None = None
        if isinstance(parent, KeptCall):
            parent.children.append(weakref.ref(self))

    def entered(self) -> None:
        """Its visit has begun, which takes to the store what was written before."""
        self.written = self._binding.written_of(self.reads)

    # Hooks for saved tensors.
    def pack(self, tensor: torch.Tensor) -> Held | WeightView:
        binding = self._binding
        if tensor.__class__ is Tensor:
            try:
                address = tensor.data_ptr()
            except RuntimeError:  # sparse or nested
                return self._odd(tensor)
            if not binding.low <= address < binding.high:
                held = Held()
                held.tensor, held.version = tensor.detach(), tensor._version  # an output would lead to its node, which has this
                self.holders.append(weakref.ref(held))
                self.bytes += tensor.nbytes
                return held
        return self._odd(tensor)

    def unpack(self, held: Held | WeightView) -> torch.Tensor:
        visits = self.unit.visits
        if visits.reading is not self:
            if not self.given_up:
                self.unit.policy.make_room(self.outermost())
            visits.arrive(self)
        if held.__class__ is WeightView:
            return visits.seen_again(held, self)
        if held.tensor is None:  # type: ignore[union-attr]
            self._whose_recompute().recompute()
        tensor = held.tensor  # type: ignore[union-attr]
        assert tensor is not None
        if tensor._version != held.version:  # type: ignore[union-attr]
            raise UsageError(f"a tensor of shape {tuple(tensor.shape)}, needed for a gradient in unit '{self.name}', has "
                             "been modified by an inplace operation since the forward")
        return tensor

    def weight_of(self, tensor: torch.Tensor) -> WeightView | None:
        """Which weight's memory it lies in, and how."""
        return self._binding.view_of(tensor)

    def come_before(self, output: Any) -> None:
        """Its weights are there before the first node of its graph runs, some of which have parameters themselves."""
        for each in leaves_of(output):
            if isinstance(each, Tensor) and each.grad_fn is not None:
                each.grad_fn.register_prehook(lambda *_: self.unit.visits.arrive(self))

    # Its end, and giving up.
    def finish(self, output: Any) -> None:
        """The forward has returned."""
        assert self.arguments is not None
        changed = self.arguments.moved()
        if changed:
            self.never("it changes what it is given in place")
        moved = self.around.moved()
        if moved:
            self.never("it changes a buffer, or a tensor that it has as an attribute, in place")
        self.learned = changed or bool(moved)
        self.seen = Seen(output)
        self.running = False
        self.unit.call_ended(changed, {id(each) for each in moved})

    def fail(self) -> None:
        """The forward has raised."""
        self.running = False
        self.never("it raised")

    # A recompute.
    def begin_again(self) -> None:
        self.running = True

    def end_again(self) -> None:
        self.running = False

    def filled(self) -> None:
        """Its holders have tensors again."""
        self.given_up, self.lost_with = False, None

    def never(self, why: str) -> None:
        """It is not given up."""
        self.why_never = self.why_never or why

    def why_not(self) -> str | None:
        """It cannot be given up now."""
        if self.given_up or self.lost_with is not None or self.arguments is None:
            return "it is given up"
        if self.is_busy():
            return "it runs"
        if self.why_never is None:
            if self._has_hooks():
                self.never("its modules have hooks of the program's, which would run twice")
            elif self.around.around.iterator is not None:
                self.never(f"its attribute '{self.around.around.iterator}' is an iterator, which cannot be put back")
            elif self.arguments.moved():
                self.never("what it was given was changed in place since")
            elif self.around.moved():
                self.never("a buffer or attribute was changed in place since")
            elif forward_ad._current_level >= 0:
                self.never(FORWARD)
            else:
                for each in self._all_tensors():
                    if each.layout is not torch.strided or each.is_nested:
                        self.never("it saves a tensor of another layout")
                    elif each._is_zerotensor():
                        self.never(FORWARD)
        return self.why_never

    def give_up(self, shelf: Shelf | None) -> None:
        """What it was given stays, on the shelf where there is one. REQUIRES: why_not() is None."""
        assert self.arguments is not None
        saved = {each.untyped_storage().data_ptr() for each in self._all_tensors()}
        for given in self.arguments.given.values():
            if type(given.kept) is not Tensor or given.own:
                continue
            if shelf is not None:
                given.lay(shelf)
            if not given.own and given.kept.untyped_storage().data_ptr() not in saved:
                given.copy()  # the program may change in place what no node has saved
        self._lose(None)

    @property
    def is_within_another(self) -> bool:
        """It is kept and given up with the call around it."""
        return isinstance(self.parent, KeptCall)

    def recompute(self) -> None:
        """Fills what was given up. Raises ExactnessError where it is not what the forward gave."""
        self.unit.recompute(self)

    def outermost(self) -> KeptCall:
        """With which it is kept and given up."""
        return self.parent.outermost() if isinstance(self.parent, KeptCall) else self

    def is_busy(self) -> bool:
        """It runs, or a call within it does."""
        return self.running or any(each.is_busy() for each in self.live_children())

    def live_children(self) -> list[KeptCall]:
        return [each for each in (ref() for ref in self.children) if each is not None]

    def storages(self) -> dict[int, int]:
        """By address: the bytes of all that it holds, without the calls within it."""
        found: dict[int, int] = {}
        for each in self._tensors():
            if each.layout is torch.strided and not each.is_nested:
                storage = each.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
        return found

    def empty(self) -> None:
        """After a recompute that was not exact: a second backward must not find what was filled in."""
        for call in self._whole():
            for ref in call.holders:
                held = ref()
                if held is not None and hasattr(held, "like"):
                    held.tensor = None

    # Private.
    def _has_hooks(self) -> bool:
        """Whatever these do elsewhere, nobody can put back."""
        return any(each.around.around.has_hooks for each in self._whole()) or bool(
            modules._global_forward_hooks or modules._global_forward_pre_hooks)

    def _odd(self, tensor: torch.Tensor) -> Held | WeightView:
        """A parameter, a view of one, a tensor of another class or layout."""
        view = self._binding.whole(tensor) if isinstance(tensor, Managed) and self._is_bound(tensor) else (
            self.weight_of(tensor))
        if view is not None:
            self.weights += 1
            return view
        held = Held()
        held.tensor, held.version = tensor.detach(), tensor._version
        if self._binding.may_lie_in_weights(tensor):
            held.tensor = held.tensor.clone()
            held.version = held.tensor._version
            self.never(f"it saves a tensor of class {type(tensor).__name__} and layout {tensor.layout}")
        self.holders.append(weakref.ref(held))
        if tensor.layout is torch.strided and not tensor.is_nested:
            self.bytes += tensor.nbytes
        return held

    def _is_bound(self, parameter: Managed) -> bool:
        return parameter.__class__ is Managed and parameter.penstock_keeper.binding is self._binding

    def _lose(self, into: KeptCall | None) -> None:
        for ref in self.holders:
            held = ref()
            # One that was changed in place since stays: it is an error, as in torch.
            if held is not None and held.tensor is not None and held.tensor._version == held.version:
                held.like = held.tensor.shape, held.tensor.dtype, held.tensor.device
                held.tensor = None
        self.given_up, self.lost_with = True, into
        self.unit.policy.gone(self)
        for child in self.live_children():
            child._lose(self)
            child.arguments = None

    def _tensors(self) -> list[torch.Tensor]:
        there = (ref() for ref in self.holders)
        return [each.tensor for each in there if each is not None and each.tensor is not None]

    def _all_tensors(self) -> list[torch.Tensor]:
        """With those of the calls within it."""
        return [each for call in self._whole() for each in call._tensors()]

    def _whole(self) -> list[KeptCall]:
        return [self, *(each for child in self.live_children() for each in child._whole())]

    def _whose_recompute(self) -> KeptCall:
        return self if self.lost_with is None else self.lost_with._whose_recompute()


def _autocast(devices: tuple[str, ...]) -> tuple[tuple[str, bool, torch.dtype], ...]:
    return tuple((each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in devices)
