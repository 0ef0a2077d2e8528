"""A managed model is copied as the ordinary one that it was: copy.deepcopy(), and what is made of it (AveragedModel).

What the engine has put into the modules is noted once, as what is there and was not before; wherever that is. While a
module is copied it is away, and parameters give themselves as ordinary ones.
"""
from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from torch import nn

from ..errors import ModelError, UsageError
from ..weights.binding import Binding
from ..weights.parameter import Managed
from .visits import Visits, in_backward

Entries = list[tuple[MutableMapping[Any, Any], list[Any]]]  # mappings, and the keys in them
ABSENT = object()


class Copies:
    """Made before anything is put into the model's modules."""

    def __init__(self, model: nn.Module, binding: Binding, visits: Visits) -> None:
        self.model, self._binding, self._visits = model, binding, visits
        self._before = [(module, dict(module.__dict__), {name: set(each) for name, each in _hooks_of(module)})
                        for module in model.modules()]
        self._hooks: Entries = []
        self._attributes: list[tuple[nn.Module, dict[str, Any]]] = []  # and what stood there

    def note_what_was_installed(self) -> None:
        for module, attributes, hooks in self._before:
            module.__dict__["__deepcopy__"] = Copier(module, self)
            new = {name: attributes.get(name, ABSENT) for name, each in module.__dict__.items()
                   if attributes.get(name, ABSENT) is not each}
            self._attributes.append((module, new))
            for name, each in _hooks_of(module):
                self._hooks.append((each, [key for key in each if key not in hooks.get(name, ())]))
        self._before = []

    def copy(self, module: nn.Module, memo: dict[int, Any]) -> Any:
        """As copy.deepcopy() gives it. Raises FitError where memory has no room for the weights."""
        if self._visits.open or in_backward():
            raise UsageError(f"a {type(module).__name__} of a managed model was copied within a forward or backward: "
                             "copy it between passes")
        self._visits.end()
        byte_count = sum(each.nbytes for each in module.parameters()
                         if isinstance(each, Managed) and id(each) not in memo)
        self._binding.loans.check_room(byte_count, f"a copy of {type(module).__name__}")
        with self._away():
            return copy.deepcopy(module, memo)

    def take_away(self) -> None:
        """What the engine has put into the modules, for good."""
        for module, before in self._attributes:
            put_back(module.__dict__, before)
        for mapping, keys in self._hooks:
            for key in keys:
                mapping.pop(key, None)

    # Private.
    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        attributes = [(module, dict(module.__dict__)) for module, _ in self._attributes]
        hooks = [(mapping, dict(mapping)) for mapping, _ in self._hooks]
        try:
            self.take_away()
            yield
        finally:
            for module, there in attributes:
                _restore(module.__dict__, there)
            for mapping, there in hooks:
                _restore(mapping, there)


class Copier:
    """In the place of a module's __deepcopy__."""

    def __init__(self, module: nn.Module, copies: Copies) -> None:
        self._module, self._copies = module, copies

    def __call__(self, memo: dict[int, Any]) -> Any:
        return self._copies.copy(self._module, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError("a managed model cannot be pickled: its weights are in the store; save engine.state_dict(), "
                         "or a copy: copy.deepcopy(model)")


def put_back(attributes: MutableMapping[str, Any], before: Mapping[str, Any]) -> None:
    """Each of these as it was, or ABSENT."""
    for name, value in before.items():
        if value is ABSENT:
            attributes.pop(name, None)
        else:
            attributes[name] = value


def _hooks_of(module: nn.Module) -> Iterator[tuple[str, MutableMapping[Any, Any]]]:
    return ((name, each) for name, each in module.__dict__.items()
            if "hooks" in name and isinstance(each, MutableMapping))


def _restore(mapping: MutableMapping[Any, Any], there: dict[Any, Any]) -> None:
    """As it was, in its order."""
    mapping.clear()
    mapping.update(there)
