"""The call of a unit: a visit, hooks before and after the forward included, and a graph that is kept or given up."""
from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from . import saved_hooks
from ..errors import ModelError, some
from ..units import Unit
from .activations import Activations
from .kept_call import KeptCall
from .leaves import leaves_of, replaced
from .recompute import Recompute
from .surroundings import Surroundings
from .visits import Visits
from ..weights.running import Call

_CALL = nn.Module._wrapped_call_impl.__code__


class UnitCall:
    """Takes the place of a module's whole call, where torch has that of one that is compiled. It belongs to one model:
    neither copied nor pickled."""

    def __init__(self, unit: Unit, visits: Visits, policy: Activations) -> None:
        assert unit.module is not None
        self.unit, self.visits, self.policy, self.module = unit, visits, policy, unit.module
        self.changes_arguments = False  # it was seen to change what it is given in place
        self.finished, self.looked_at = 0, 0  # calls, recomputes
        self.copied: frozenset[int] = frozenset()  # tensors of its modules that it was seen to change in place
        self.devices = tuple(dict.fromkeys(("cpu", _device_type(unit.module))))
        self._around: Surroundings | None = None

    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        visits, called = self.visits, _module_that_is_called()
        if called is not None and called is not self.module:
            return called._call_impl(*args, **kwargs)  # a shallow copy of it, with attributes and weights of its own
        if not torch.is_grad_enabled():
            return self._visited(args, kwargs)
        pair = saved_hooks.innermost()
        around = saved_hooks.owner_of(pair)
        if type(around) is Recompute and around.visits is visits:
            call = self._call()
            visits.enter(call)
            try:
                return around.nested(self, args, kwargs)
            finally:
                visits.leave(call)
        are_the_programs = pair is not None and not isinstance(around, (KeptCall, Recompute))  # and have what it saves
        if are_the_programs or not saved_hooks.are_enabled() or self._is_torchs_own() or saved_hooks.is_transformed():
            return self._visited(args, kwargs)
        return self._kept(args, kwargs)

    def run(self, args: Any, kwargs: Any) -> Any:
        """What it gives out outlives the visit: a view of a weight is copied."""
        output = self.module._call_impl(*args, **kwargs)
        if type(output) is torch.Tensor:
            return output.clone() if self._is_view_of_weight(output) else output
        if not any(map(self._is_view_of_weight, leaves_of(output))):
            return output
        return replaced(output, self._is_view_of_weight, torch.clone)

    def call_ended(self, changes_arguments: bool, copied: set[int]) -> None:
        """A forward, which was seen to change what it is given in place, and these tensors of its modules."""
        self.changes_arguments = self.changes_arguments or changes_arguments
        self.copied |= copied
        self.finished += 1

    def recompute_looked_at(self) -> None:
        """For what of it is left."""
        self.looked_at += 1

    def compile(self, *_: Any, **__: Any) -> None:
        """In the place of the module's: a compiled call would take the place of the visit."""
        self.policy.tell(in_vain([self.unit.name]))

    def require_gradients(self) -> list[bool]:
        """Of the parameters that it reads, now."""
        with torch._C.DisableTorchFunctionSubclass():
            return [each.parameter.requires_grad for each in self.unit.bound]

    def require(self, flags: list[bool]) -> None:
        """As require_gradients() gave them."""
        with torch._C.DisableTorchFunctionSubclass():
            for each, flag in zip(self.unit.bound, flags):
                if each.parameter.requires_grad != flag:
                    each.parameter.requires_grad_(flag)

    def recompute(self, call: KeptCall) -> None:
        """See KeptCall."""
        Recompute(self.visits, call).run_all()

    def surroundings(self) -> Surroundings:
        if self._around is None or not self._around.are_same() or not self.copied <= self._around.copied:
            self._around = Surroundings(self.module, self.copied)
        return self._around

    # Private.
    def _is_torchs_own(self) -> bool:
        """Its weights stay where they are, and its graph is never given up: torch may keep what it likes, without hooks."""
        return self.policy.word_of(self.unit.name) == "keep" and self.visits.binding.resident.issuperset(self.unit.reads)

    def _call(self) -> Call:
        return Call(self.unit.name, self.unit.reads, _last(self.visits.open))

    def _visited(self, args: Any, kwargs: Any) -> Any:
        """Without hooks of its own."""
        visits, call = self.visits, self._call()
        if not visits.binding.resident.issuperset(self.unit.reads) and saved_hooks.is_transformed():
            raise ModelError(f"unit '{self.unit.name}' is called within a transform of torch.func, whose graphs keep weights' "
                             "memory: call the transform within the unit's forward, or keep the unit in memory: "
                             f"penstock.initialize(resident=['{self.unit.name}'])")
        visits.enter(call)
        try:
            return self.run(args, kwargs)
        finally:
            visits.leave(call)
            if visits.kind == "inference" and torch.is_autocast_enabled(self.devices[-1]):
                torch.clear_autocast_cache()  # else a copy of every weight stays until autocast ends

    def _kept(self, args: Any, kwargs: Any) -> Any:
        visits, policy = self.visits, self.policy
        policy.make_room()
        call = KeptCall(self, _last(visits.open), args, kwargs)
        visits.enter(call)
        call.entered()
        saved_hooks.push(call.pack, call.unpack)
        try:
            output = self.run(args, kwargs)
        except BaseException as error:
            call.fail()
            if "saved tensor hooks" in str(error) and type(error) is RuntimeError:
                raise ModelError(f"unit '{self.unit.name}' does what torch refuses within hooks for saved tensors, by which "
                                 f"weights are taken out of graphs ({error}). Where the unit's weights stay in memory, no "
                                 f"hooks are needed: penstock.initialize(resident=['{self.unit.name}']), with "
                                 f"Settings(activations={{'{self.unit.name}': 'keep'}})") from error
            if _is_out_of_memory(error):
                error.args = (f"{error}\n{policy.where_memory_is()}\n{visits.core.memory_table()}",)
            raise
        finally:
            saved_hooks.pop()
            visits.leave(call)
        call.finish(output)
        if call.saved_without_hooks:
            call.come_before(output)
        policy.hold(call)
        return output

    def _is_view_of_weight(self, value: Any) -> bool:
        return type(value) is torch.Tensor and not value.is_nested and self.visits.binding.may_lie_in_weights(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise ModelError(f"unit '{self.unit.name}' cannot be copied: its weights are in the store; copy the model "
                         "before penstock.initialize(), or take engine.state_dict()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError(f"unit '{self.unit.name}' cannot be pickled: its weights are in the store; save "
                         "engine.state_dict(), not the model")


def compiled_in_vain(model: nn.Module, units: list[Unit]) -> str | None:
    """What to say of modules whose whole call is compiled: a visit takes the place of that."""
    names = [unit.name for unit in units if unit.module is not None and _call_is_compiled(unit.module)]
    if _call_is_compiled(model) or type(model).__name__ == "OptimizedModule":
        names.insert(0, "the model")
    return in_vain(names) if names else None


def in_vain(names: list[str]) -> str:
    """Of what is compiled as a whole."""
    return (f"compiled as a whole are {some(names)}: they run as they are. What is compiled within units is used: "
            "model.layers[i] = torch.compile(model.layers[i]) before penstock.initialize()")


def _call_is_compiled(module: nn.Module) -> bool:
    own = module.__dict__.get("_compiled_call_impl")
    return own is not None and not isinstance(own, UnitCall)


def _module_that_is_called() -> nn.Module | None:
    """Torch does not tell it who takes the place of its call."""
    frame = sys._getframe(2)
    for _ in range(2):  # between them are a frame or two of torch.compiler.disable
        if frame.f_code is _CALL:
            return frame.f_locals["self"]  # type: ignore[no-any-return]
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _last(calls: list[Call]) -> Call | None:
    return calls[-1] if calls else None


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _device_type(module: nn.Module) -> str:
    return next((each.device.type for each in module.parameters()), "cpu")
