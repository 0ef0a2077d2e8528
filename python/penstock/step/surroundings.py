"""What a unit's forward may read and change beside its arguments: what its modules hold. A recompute finds it as the
forward did, and leaves it as the program has it."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..weights.structure import Values
from .contents import Contents, is_state, refill

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
OWN = frozenset({  # what no forward changes
    "_parameters", "_modules", "_buffers", "_non_persistent_buffers_set", "_compiled_call_impl", "compile", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_apply", "__deepcopy__",
    "zero_grad"})
TORCHS = frozenset(nn.Module().__dict__)  # mostly empty


class Surroundings:
    """Attributes, buffers and containers of a unit's modules, as they are now. One object serves all calls between which
    no attribute was set. `copied`: tensors that calls were seen to change in place; they are copied with each call.
    `has_hooks`: the program's own, whose effects elsewhere nobody can put back. `iterator`: the name of one."""

    def __init__(self, module: nn.Module, copied: frozenset[int] = frozenset()) -> None:
        self.modules = list(module.modules())
        self.attributes = [dict(each.__dict__) for each in self.modules]
        self.buffers = [dict(each._buffers) for each in self.modules]
        self.parameters = [dict(each._parameters) for each in self.modules]  # functional_call() puts others in their place
        self.roots: list[Any] = []  # what is more than its identity: containers, objects, generators, tensors
        self.has_hooks = any(_is_of_the_program(hook) for each in self.attributes for key in HOOKS
                             for hook in each.get(key, {}).values())
        for attributes in self.attributes:
            self.roots += [value for key, value in attributes.items() if key not in OWN and is_state(value)
                           and (key not in TORCHS or value)]
        self.empty_hooks = [each for attributes in self.attributes for each in _hooks_in(attributes) if not each]
        self.iterator = next((key for each in self.attributes for key, value in each.items()
                              if isinstance(value, Iterator)), None)  # nobody can put it back
        self.tensors = [each for named in self.buffers for each in named.values() if each is not None]
        self.copied = copied | {id(buffer) for each in self.modules if isinstance(each, nn.modules.batchnorm._NormBase)
                                for buffer in each._buffers.values()}  # its kernel counts no versions
        self._values = Values([
            *(each.__dict__ for each in self.modules),
            *(own for each in self.modules for own in (each._buffers, each._parameters) if own),
            *(each.__dict__[key] for each in self.modules for key in HOOKS if key in each.__dict__)])

    def are_same(self) -> bool:
        return self._values.are_same()

    def hooks(self) -> list[dict[Any, Any]]:
        """What is registered on its modules and parameters, now."""
        found = [each for module in self.modules for each in _hooks_in(module.__dict__)]
        with torch._C.DisableTorchFunctionSubclass():
            for parameter in (each for module in self.modules for each in module._parameters.values() if each is not None):
                found += [each for each in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks) if each]
        return found

    def contents(self, copies: bool = False, bits: bool = False) -> Contents:
        """Now."""
        return Contents(self.tensors, self.roots, self.copied, copies, bits)


class AsItWas:
    """A unit's surroundings before one call of it. `bits`: changes that torch does not count are seen, too."""

    def __init__(self, around: Surroundings, bits: bool = False) -> None:
        self.around = around
        self._contents = around.contents(bits=bits) if around.roots or around.tensors else None

    def moved(self) -> list[torch.Tensor]:
        """See Contents."""
        return [] if self._contents is None else self._contents.moved()

    def put(self) -> Callable[[], None]:
        """Gives what brings back what is there now."""
        around = self.around
        hooks = [(each, dict(each)) for each in around.hooks()]
        for each in around.empty_hooks:
            each.clear()
        now = around.contents(copies=True)  # kernels, .data and numpy change tensors without a count
        held = [(dict(each.__dict__), dict(each._buffers), dict(each._parameters)) for each in around.modules]
        _set(around, zip(around.attributes, around.buffers, around.parameters))
        if self._contents is not None:
            self._contents.put()

        def put_back() -> None:
            now.put()
            _set(around, held)
            for each in around.hooks():
                each.clear()
            for each, there in hooks:
                each.update(there)
        return put_back


def _hooks_in(attributes: dict[str, Any]) -> Iterator[dict[Any, Any]]:
    return (each for key, each in attributes.items() if key in TORCHS and key not in OWN and isinstance(each, dict))


def _is_of_the_program(hook: Any) -> bool:
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return not str(module).startswith(("torch.", "penstock."))


def _set(around: Surroundings, held: Iterable[tuple[dict[str, Any], ...]]) -> None:
    for module, (attributes, buffers, parameters) in zip(around.modules, held):
        refill(module.__dict__, attributes)
        refill(module._buffers, buffers)
        refill(module._parameters, parameters)
