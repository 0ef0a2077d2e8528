"""What a managed model answers to state_dict(), load_state_dict() and to(): the store has the weights."""
from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..errors import ModelError
from ..weights.binding import Binding
from .visits import Visits


class Hooks:
    """A module's, by the names that they have since torch 2.5; before, they had others."""

    def __init__(self, module: nn.Module) -> None:
        self.before_state_dict: Any = module.register_state_dict_pre_hook
        self.after_state_dict: Any = getattr(module, "register_state_dict_post_hook",
                                             module._register_state_dict_hook)
        own: Any = getattr(module, "register_load_state_dict_pre_hook", None)
        self.before_load: Any = own or (lambda hook: module._register_load_state_dict_pre_hook(hook, with_module=True))


class ModelState:
    """Hooks on each module that has parameters of its own. Weights are read and written one module at a time."""

    def __init__(self, model: nn.Module, binding: Binding, visits: Visits) -> None:
        self.model, self.binding, self.visits = model, binding, visits
        self._keep_vars = False
        # One tensor per parameter of one state_dict(), so that tied ones share memory as they did.
        self._gathered: weakref.WeakValueDictionary[nn.Parameter, torch.Tensor] = weakref.WeakValueDictionary()
        for module in model.modules():
            module.zero_grad = Zeroing(module, binding)  # type: ignore[method-assign]
            hooks = Hooks(module)
            hooks.before_state_dict(self._before_state_dict)
            own = {key: each for key, each in module._parameters.items() if each is not None}
            if own:
                # torch writes an attribute to this one, which a method does not take
                hooks.after_state_dict(lambda *args: self._after_state_dict(*args))
                hooks.before_load(self._before_load)
                module.register_load_state_dict_post_hook(self._after_load)
                module._apply = Immovable(module)  # type: ignore[method-assign]
        if not isinstance(model.__dict__.get("_apply"), Immovable):
            model._apply = Immovable(model)  # type: ignore[method-assign]

    def gathered(self, parameter: nn.Parameter) -> torch.Tensor:
        values = self._gathered.get(parameter)
        if values is None:
            values = self._gathered[parameter] = self.binding.loans.given(parameter)
        return values

    def _before_state_dict(self, module: nn.Module, prefix: str, keep_vars: bool) -> None:
        if prefix == "" or module is self.model or self.visits.kind is not None:
            self.visits.end()
            self._gathered.clear()  # a new one
        self._keep_vars = keep_vars  # who asks for the parameters gets them
        self.binding.gather(bool(module._parameters))

    def _after_state_dict(self, module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
        self.binding.gather(False)
        for key, parameter in module._parameters.items():
            if parameter in self.binding.places and prefix + key in state and not self._keep_vars:
                state[prefix + key] = self.gathered(parameter)

    def _before_load(self, module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any],
                     *_: Any) -> None:
        if metadata.get("assign_to_params_buffers", False):
            raise ModelError("load_state_dict(assign=True) would replace parameters that are managed; leave out assign")
        self.visits.end()
        for key, parameter in module._parameters.items():
            if parameter in self.binding.places and prefix + key in state:
                self.binding.loans.borrow(parameter)

    def _after_load(self, _: nn.Module, __: Any) -> None:
        self.binding.loans.settle()


class InPlace:
    """Of a module's method, `name`."""

    name: str

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """What stood there, of the copy."""
        return types.MethodType(getattr(type(self._module), self.name), copy.deepcopy(self._module, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError("a managed model cannot be pickled: its weights are in the store; save engine.state_dict(), "
                         "or a copy: copy.deepcopy(model)")


class Immovable(InPlace):
    """to(), half() and cuda() may ask for what is so already, and nothing else."""

    name = "_apply"

    def __call__(self, fn: Any, recurse: bool = True) -> nn.Module:
        for parameter in self._first_of_each_type():
            probe = torch.empty(1, dtype=parameter.dtype, device=parameter.device)
            moved = fn(probe)
            if moved.dtype != probe.dtype or moved.device != probe.device:
                raise ModelError(f"the model's parameters are managed as {probe.dtype} on {probe.device} and cannot "
                                 f"become {moved.dtype} on {moved.device}: call to() first, penstock.initialize() then")
        return self._module

    def _first_of_each_type(self) -> Iterator[nn.Parameter]:
        seen = set()
        for parameter in self._module.parameters():
            if (parameter.dtype, parameter.device) not in seen:
                seen.add((parameter.dtype, parameter.device))
                yield parameter


class Zeroing(InPlace):
    """Gradients that a step has taken are asked for, too."""

    name = "zero_grad"

    def __init__(self, module: nn.Module, binding: Binding) -> None:
        super().__init__(module)
        self._binding = binding

    def __call__(self, set_to_none: bool = True) -> None:
        gradients = self._binding.gradients
        before = gradients.places_with_one()  # torch asks for each
        type(self._module).zero_grad(self._module, set_to_none)
        gradients.clear_of(self._module.parameters(), before, to_zeros=not set_to_none)
