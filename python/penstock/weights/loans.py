"""Weights that the program reads and writes between passes: they are brought, and what was changed goes to the store.

A parameter that is borrowed has memory of its own, until nobody else has a part of that memory any more, or the next
pass begins. What the program does in place counts in the parameter's version, whichever alias it uses.
"""
from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from ..core import Core, What
from ..errors import FitError, ModelError, UsageError, some
from ..machine.host_memory import HostMemory
from .addends import Place
from .bits import AsTheyWere, differing, same_bits
from .handed import ASSIGNED, STATE, Handed
from .lent import use_count
from .overlap import overlap
from .parameter import Borrowed, Managed, Released, values_of

# The parameter's, and that of the object by which it is asked.
OWN_USES = 2
LITTLE_BYTES = 1 << 20  # nobody looks whether there is room for so few


class Lender(Protocol):
    """Whose weights these are: binding.Binding, whose calls say what they do."""

    core: Core
    names: dict[nn.Parameter, str]
    places: dict[nn.Parameter, Place]
    handed: Handed

    def lend(self, parameter: nn.Parameter, values: torch.Tensor) -> None: ...

    def give_back(self, parameter: nn.Parameter) -> None: ...

    def read(self, parameter: nn.Parameter, what: What = "weight") -> torch.Tensor: ...

    def write(self, parameter: nn.Parameter, values: torch.Tensor, what: What = "weight") -> None: ...

    def written(self, parameter: nn.Parameter) -> None: ...

    def take_residents(self) -> None: ...

    def check_no_step(self, parameter: nn.Parameter, done: str) -> None: ...

    def check_not_held(self, parameter: nn.Parameter, values: torch.Tensor) -> None: ...

    def check_unchanged(self) -> None: ...


class Standing:
    """Memory of the program's that is a weight's, seen by `theirs`; as it was when last looked at."""

    def __init__(self, theirs: torch.Tensor) -> None:
        self.theirs, self.alias = weakref.ref(theirs), theirs.detach()
        self.came = AsTheyWere(self.alias)


class Loans:
    """Owned by the binding. One caller at a time."""

    def __init__(self, binding: Lender) -> None:
        self._binding = binding
        self.room: Callable[[], HostMemory] = HostMemory.read
        # By gathered() and load_state_dict(), which give them back; as they came.
        self.lent: dict[nn.Parameter, AsTheyWere] = {}
        self._borrowed: dict[nn.Parameter, AsTheyWere] = {}  # the same
        self._enough = 2  # borrowed ones, at which all are looked at
        self._aliases: list[tuple[str, StorageWeakRef]] = []  # of memory that went while somebody had it
        # What is a parameter's memory until weights change, if anybody has it: what state_dict() gave, what was assigned.
        self._standing: dict[nn.Parameter, Standing] = {}
        self._held: list[tuple[nn.Parameter, Standing]] = []  # memory that went meanwhile, and that somebody has
        # Of those from before the last pass the names, and the versions.
        self._given_before: list[tuple[str, weakref.ref[torch.Tensor], int]] = []

    # What the program does to a parameter.
    def is_lent(self, parameter: nn.Parameter) -> bool:
        """It has memory of its own, and what becomes of that is not forgotten."""
        return parameter in self.lent or parameter in self._borrowed

    def borrow(self, parameter: nn.Parameter) -> None:
        if self.is_lent(parameter):
            return
        standing = self._standing.get(parameter)
        if standing is not None and _may_be_memory_of(parameter, standing.alias):
            values = standing.alias.detach()
        else:
            self._take_standing([parameter])
            self.check_room(parameter.nbytes, f"parameter '{self._name(parameter)}'")
            values = self._binding.read(parameter)
        self._binding.lend(parameter, values)
        parameter.__class__ = Borrowed
        self._borrowed[parameter] = AsTheyWere(parameter)

    def assign(self, parameter: nn.Parameter, values: torch.Tensor, ends_pass: Callable[[], bool]) -> None:
        """`.data = values`: its weight is these values, unless `ends_pass` says that a forward or backward has it."""
        if isinstance(values, Released) and values is not parameter:
            self.borrow(values)
        self._check_assigned(parameter, values)
        if parameter in self.lent:
            with torch.no_grad():
                parameter.copy_(values)
        elif ends_pass():
            self.settle()
            self._binding.check_not_held(parameter, values)
            self._binding.write(parameter, values)
            self._binding.give_back(parameter)  # an alias that is assigned may have counted in its version
            self._is_now(parameter, values)
        else:
            raise ModelError(f"'{self._name(parameter)}'.data was assigned within a forward of its unit or a backward, which "
                             "have its weights: assign before or after it; between steps engine.set_weight("
                             f"'{self._name(parameter)}', values) does it, too")

    @contextlib.contextmanager
    def gathered(self, parameters: Iterable[nn.Parameter], modify: bool) -> Iterator[None]:
        """They are there within, and what was changed goes to the store, or is an error."""
        listed = list(dict.fromkeys(parameters))
        there = [self._name(each) for each in listed if each in self.lent]
        if there:
            raise UsageError(f"engine.gathered() of parameters {some(there)} within another engine.gathered() of them")
        try:
            for each in listed:
                self.lend(each, watched=not modify)
            yield
            self._keep_changes(listed, modify)
        finally:
            for each in listed:
                self.take_back(each)

    def lend(self, parameter: nn.Parameter, watched: bool) -> None:
        """Until take_back(). REQUIRES: no pass."""
        self._binding.lend(parameter, self._binding.read(parameter))
        self.lent[parameter] = AsTheyWere(parameter, bits=watched)

    def take_back(self, parameter: nn.Parameter) -> None:
        if self.lent.pop(parameter, None) is not None:
            self._binding.give_back(parameter)

    def given(self, parameter: nn.Parameter) -> torch.Tensor:
        """What stands for its memory until weights change, as what state_dict() gives in torch is the weight's."""
        if parameter in self.lent:
            values = values_of(parameter).cpu().clone()
        elif parameter in self._standing:
            return self._standing[parameter].alias.detach()
        else:
            if parameter in self._borrowed:
                self._take(parameter, self._borrowed)
            values = self._binding.read(parameter)
            if parameter in self._borrowed:
                self._binding.lend(parameter, values.detach())
        self._standing[parameter] = Standing(values)
        self._binding.handed.add(parameter, values, STATE)
        return values

    def copy_of(self, parameter: nn.Parameter) -> torch.Tensor:
        """In memory of its own, where the model computes."""
        if isinstance(parameter, Released):
            return self._binding.read(parameter).to(self._binding.core.device)
        return values_of(parameter).clone()

    # How they go again.
    def let_go(self, but: Iterable[Managed]) -> None:
        """The newest, or now and then all, if nobody has their memory; without `but` all of them."""
        if not self._borrowed:
            return
        if not but:
            return self.settle()
        looked_at = list(self._borrowed) if len(self._borrowed) >= self._enough else [next(reversed(self._borrowed))]
        for each in {*looked_at}.difference(but):
            self._take(each, self._borrowed)
            if not self._is_held(each):
                del self._borrowed[each]
                self._binding.give_back(each)
        self._enough = max(2, 2 * len(self._borrowed))

    def settle(self, goes_on: bool = True) -> None:
        """All go, also those whose memory somebody has. What was changed is in the store, of resident ones, too. `goes_on`:
        what is done to memory that somebody has counts until the next time, too."""
        borrowed, self._borrowed = self._borrowed, {}
        held: list[tuple[nn.Parameter, Standing]] = []
        self._aliases = [each for each in self._aliases if not each[1].expired()]
        refused = None
        for each in borrowed:
            try:
                self._take(each, borrowed)
            except UsageError as error:
                refused = refused or error
            if each.requires_grad and each not in self._standing and self._is_held(each):
                self._aliases.append((self._name(each), StorageWeakRef(each.untyped_storage())))
                if goes_on:
                    held.append((each, Standing(values_of(each))))
            self._binding.give_back(each)
        self._binding.take_residents()
        for parameter, standing in self._held:
            self._take_changes(parameter, standing)
        self._held += held
        self._take_standing(list(self._standing))
        if not goes_on:
            self.weights_change()
        if refused is not None:
            raise refused
        self._binding.check_unchanged()

    def forget(self) -> None:
        """All go, and what was changed is not kept."""
        borrowed, self._borrowed = self._borrowed, {}
        for each in borrowed:
            self._binding.give_back(each)
        self._standing.clear()
        self._held.clear()

    def weights_change(self) -> None:
        """By an update: nothing stands for their memory any more."""
        self._held.clear()
        standing, self._standing = self._standing, {}
        for parameter, each in standing.items():
            self._given_before.append((self._name(parameter), each.theirs, each.alias._version))
        if standing:
            self._given_before = [each for each in self._given_before if each[1]() is not None]

    def put(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """Its weight becomes these values, which somebody wrote in place. Masters of others keep their lower bits."""
        binding, place = self._binding, self._binding.places[parameter]
        spec = binding.core.units[place[0]].parameters[place[1]]
        if tuple(values.shape) != spec.shape or values.dtype != spec.dtype:
            raise ModelError(f"parameter '{self._name(parameter)}' is managed as {spec.dtype} of shape {spec.shape} "
                             f"and became {values.dtype} of shape {tuple(values.shape)}: change the model first, "
                             "initialize then")
        binding.check_no_step(parameter, "changed")
        what: What = "weight"
        flat = values.detach().reshape(-1).cpu()
        if spec.trainable and spec.dtype != torch.float32:
            what, master = "master", binding.core.read(*place, "master")
            flat = torch.where(differing(master.to(spec.dtype), flat), flat.float(), master)
        binding.core.write(*place, what, flat)
        binding.written(parameter)

    # Before others have them.
    def before_pass(self, training: bool) -> None:
        if self.lent:
            raise UsageError(f"a forward or backward begins within engine.gathered(), which has lent parameters "
                             f"{some(self._name(each) for each in self.lent)}: leave it first")
        self.settle(goes_on=not training)
        if training:
            self.check_aliases()

    def check_aliases(self) -> None:
        """Weights are about to change, and what was read of them cannot follow."""
        self._held.clear()
        alive = [(name, there, version) for name, each, version in self._given_before if (there := each()) is not None]
        self._given_before = [(name, weakref.ref(there), there._version) for name, there, _ in alive]
        changed = [name for name, there, version in alive if there._version != version]
        if changed:
            raise ModelError(f"what an earlier state_dict() gave of parameters {some(changed)}, or what was assigned to their "
                             ".data, was changed in place: it is a copy by now, and the model does not see that; give it to "
                             "engine.load_state_dict()")
        if self._names_held():
            gc.collect()
        held, self._aliases = self._names_held(), []
        if held:
            raise UsageError("the program still has memory that it read between passes from parameters "
                             f"{some(held)}, by .data, detach() or a view: in torch its values change when these "
                             "weights are updated, here they cannot. Copy what is to be kept, "
                             "parameter.detach().clone(), and let go of the rest")

    def check_room(self, byte_count: int, of: str) -> None:
        """In the machine's memory, where that is where the model computes. Raises FitError."""
        if byte_count < LITTLE_BYTES or self._binding.core.device.type != "cpu":
            return
        room = self.room()
        if byte_count > room.available_bytes:
            raise FitError(f"{of} would take {byte_count / 2**20:,.1f} MiB of memory, and there are "
                           f"{room.available_bytes / 2**20:,.1f} MiB ({room.limited_by}): let go of other copies, take "
                           "weights one at a time, engine.named_weights(), or give the process more memory")

    # Private.
    def _name(self, parameter: nn.Parameter) -> str:
        return self._binding.names[parameter]

    def _is_now(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        """In torch these are its memory, and what it was before has nothing to do with it any more."""
        name = self._name(parameter)
        self._aliases = [each for each in self._aliases if each[0] != name]
        self._held = [each for each in self._held if each[0] is not parameter]
        self._given_before = [each for each in self._given_before if each[0] != name]
        self._binding.handed.forget(parameter)
        self._standing[parameter] = Standing(values)
        self._binding.handed.add(parameter, values, ASSIGNED)

    def _keep_changes(self, parameters: list[nn.Parameter], modify: bool) -> None:
        if modify:
            for each in parameters:
                self._keep(each)
            return
        changed = [self._name(each) for each in parameters if self.lent[each].differ_from(each)]
        if changed:
            raise ModelError(f"parameters {some(changed)} were changed within engine.gathered() without modify=True: "
                             "nothing of it is kept; to keep it say engine.gathered(parameters, modify=True)")

    def _take(self, parameter: nn.Parameter, came: dict[nn.Parameter, AsTheyWere]) -> None:
        if came[parameter].differ_from(parameter):
            came[parameter] = AsTheyWere(parameter)
            self._keep(parameter)

    def _keep(self, parameter: nn.Parameter) -> None:
        if not same_bits(self._binding.read(parameter), values_of(parameter).cpu()):
            self.put(parameter, values_of(parameter))

    def _take_standing(self, parameters: Iterable[nn.Parameter]) -> None:
        """What was done to what stands for these is in the store."""
        for parameter in parameters:
            standing = self._standing.pop(parameter, None)  # one of another shape is an error once
            if standing is None:
                continue
            self._take_changes(parameter, standing)
            if use_count(standing.alias.untyped_storage()._cdata) > OWN_USES:
                self._standing[parameter] = standing

    def _take_changes(self, parameter: nn.Parameter, standing: Standing) -> None:
        if standing.came.differ_from(standing.alias):
            self.put(parameter, standing.alias)
            if not self.is_lent(parameter):
                self._binding.give_back(parameter)  # an alias of its memory has counted in its version
            standing.came = AsTheyWere(standing.alias)

    def _is_held(self, parameter: nn.Parameter) -> bool:
        asked = parameter.untyped_storage()
        return use_count(asked._cdata) > OWN_USES

    def _names_held(self) -> list[str]:
        return [name for name, storage in self._aliases if not storage.expired()]

    def _check_assigned(self, parameter: nn.Parameter, values: torch.Tensor) -> None:
        name, device = self._name(parameter), self._binding.core.device
        if (values.shape, values.dtype, values.device) != (parameter.shape, parameter.dtype, device):
            raise ModelError(f"'{name}'.data was assigned a tensor of shape {tuple(values.shape)}, {values.dtype} on "
                             f"{values.device}, and is managed as {tuple(parameter.shape)}, {parameter.dtype} on "
                             f"{device}: change the model first, initialize then")
        others = (each for each in self._there() if each is not parameter and (each is values or overlap(each, values)))
        other = next(others, None)
        if other is not None:
            raise ModelError(f"'{name}'.data was assigned the memory of '{self._name(other)}', which would tie the "
                             "two: tie them before penstock.initialize(), by one nn.Parameter for both; or assign a "
                             "copy, .data.clone()")

    def _there(self) -> Iterable[nn.Parameter]:
        for each in self._binding.places:
            if not isinstance(each, Released):
                yield each


def _may_be_memory_of(parameter: nn.Parameter, values: torch.Tensor) -> bool:
    return (values.shape == parameter.shape and values.dtype == parameter.dtype and values.device == parameter.device
            and values.is_contiguous() and not values.requires_grad and type(values) in (torch.Tensor, nn.Parameter))
