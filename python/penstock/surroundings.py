"""What a unit's forward may read and change beside its arguments: what its modules hold. A recompute finds it as the
forward did, and leaves it as the program has it."""
from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from . import generators
from .structure import Values

CONTAINERS = (list, dict, set, deque)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
OWN = frozenset({  # what no forward changes
    "_parameters", "_modules", "_buffers", "_non_persistent_buffers_set", "_compiled_call_impl", "compile", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"})
NOT_OF_THE_PROGRAM = ("torch.", "builtins", "functools", "transformers.", "typing", "weakref", "threading", "_thread")
DEEPEST, MOST = 4, 1000  # of what containers hold


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
            self.roots += [value for key, value in attributes.items() if key not in OWN and _is_state(value)
                           and (value if isinstance(value, CONTAINERS) and key.startswith("_") else True)]
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


class State:
    """What is reached from a unit's attributes, at one moment: containers and objects with their contents, generators with
    their states, tensors with their versions and, of those in `copied`, their values. Read anew with each call."""

    def __init__(self, around: Surroundings) -> None:
        self._copied = around.copied
        self._contents: list[tuple[Any, Any]] = []  # a container or the attributes of an object, and a copy
        self._generators: list[tuple[Any, generators.State]] = []
        self._tensors: list[tuple[torch.Tensor, int, torch.Tensor | None]] = []
        self._seen: set[int] = set()
        for tensor in around.tensors:
            self._take_tensor(tensor)
        for root in around.roots:
            self._take(root, 0)
        del self._seen

    def moved(self) -> list[torch.Tensor]:
        """Tensors that were changed in place since and of which there is no copy."""
        return [each for each, version, content in self._tensors if content is None and _version(each) != version]

    def put(self) -> None:
        for there, content in self._contents:
            _refill(there, content)
        for generator, state in self._generators:
            generators.set_state(generator, state)
        for tensor, _, values in self._tensors:
            if values is not None:
                tensor.data.copy_(values)  # no version moves: graphs that saved it are no concern of a recompute

    # Private.
    def _take(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if not isinstance(value, nn.Parameter):
                self._take_tensor(value)
            return
        if not _is_state(value) or depth > DEEPEST or id(value) in self._seen or len(self._seen) > MOST:
            return
        self._seen.add(id(value))
        state = generators.state_of(value)
        if state is not None:
            self._generators.append((value, state))
            return
        there = value if isinstance(value, (*CONTAINERS, tuple)) else vars(value)
        if not isinstance(there, tuple):
            self._contents.append((there, copy.copy(there)))
        for each in list(there.values() if isinstance(there, dict) else there)[:MOST]:
            self._take(each, depth + 1)

    def _take_tensor(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._seen:
            self._seen.add(id(tensor))
            self._tensors.append((tensor, _version(tensor),
                                  tensor.detach().clone() if id(tensor) in self._copied else None))


class AsItWas:
    """A unit's surroundings before one call of it."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._state = State(around) if around.roots or around.tensors else None

    def moved(self) -> list[torch.Tensor]:
        """See State."""
        return [] if self._state is None else self._state.moved()

    def put(self) -> Callable[[], None]:
        """Gives what brings back what is there now."""
        around = self.around
        now = State(around)
        held = [(dict(each.__dict__), dict(each._buffers), dict(each._parameters)) for each in around.modules]
        _set(around, zip(around.attributes, around.buffers, around.parameters))
        if self._state is not None:
            self._state.put()

        def put_back() -> None:
            now.put()
            _set(around, held)
        return put_back


def _is_state(value: Any) -> bool:
    """More than its identity may change."""
    kind = type(value)
    if kind in (int, float, str, bool, type(None), torch.dtype):
        return False
    if isinstance(value, (*CONTAINERS, tuple)):
        return bool(value) or not isinstance(value, tuple)
    if isinstance(value, torch.Tensor):
        return not isinstance(value, nn.Parameter)
    if isinstance(value, (nn.Module, type)):
        return False
    if generators.is_one(value):
        return True
    return bool(kind.__dictoffset__) and not callable(value) and not kind.__module__.startswith(NOT_OF_THE_PROGRAM)


def _is_of_the_program(hook: Any) -> bool:
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return not str(module).startswith("torch.")


def _refill(there: Any, content: Any) -> None:
    """In place: others may have the same one."""
    if isinstance(there, list):
        there[:] = content
    else:
        there.clear()
        (there.extend if isinstance(there, deque) else there.update)(content)


def _set(around: Surroundings, held: Iterable[tuple[dict[str, Any], ...]]) -> None:
    for module, (attributes, buffers, parameters) in zip(around.modules, held):
        _refill(module.__dict__, attributes)
        _refill(module._buffers, buffers)
        _refill(module._parameters, parameters)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
