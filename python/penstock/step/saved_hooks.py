"""Hooks for saved tensors: which are innermost now, and the program's own, which get all that is no weight.

Weights' memory is lent: whoever saved it as it is would read somebody else's later. So what the program's hooks are given
(torch's checkpoint has such hooks, too) goes by `taken_out` first, of each model that is managed.
"""
from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.autograd import graph
from torch.autograd.graph import saved_tensors_hooks

Pack = Callable[[torch.Tensor], Any]
Unpack = Callable[[Any], torch.Tensor]

_push = torch._C._autograd._push_saved_tensors_default_hooks
_pop = torch._C._autograd._pop_saved_tensors_default_hooks
are_enabled: Callable[[], bool] = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled")
_top: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # since torch 2.6


class Lender(Protocol):
    """Of one model: the memory of its weights."""

    def take_out(self, tensor: torch.Tensor) -> Any | None:
        """What is to be kept in the place of a tensor that lies in a weight; None of another."""

    def give_again(self, taken: Any) -> torch.Tensor: ...

    def kept_apart(self, tensor: torch.Tensor) -> torch.Tensor:
        """One that was not taken out; where it may lie in a weight all the same (a sparse one's values), a copy."""

    def hooks_come(self) -> None:
        """The program's hooks are about to keep tensors."""

    def give_copies(self) -> None:
        """Weights that are read now are copies from here on: torch is about to keep them without hooks."""


class TakesWeightsOut:
    """Its methods are hooks that keep no memory of a lender's weights; `lender` None: of nobody's."""

    lender: Lender | None = None

    def takes_out_of(self, lender: Lender) -> bool:
        return self.lender is None or self.lender is lender


_lenders: weakref.WeakSet[Lender] = weakref.WeakSet()
_enter, _leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__
_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
_disable = graph.disable_saved_tensors_hooks


class _Entered(threading.local):
    """Before torch 2.6 nobody tells which are innermost: it is watched."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Pack, Unpack]] = []


_entered = _Entered()


class Taken:
    """What a lender took out of the program's hooks. `counted` is what a checkpoint of torch's has in its place."""

    __slots__ = ("lender", "what", "counted")

    def __init__(self, lender: Lender, what: Any, counted: Any) -> None:
        self.lender, self.what, self.counted = lender, what, counted


def is_transformed() -> bool:
    """Within torch.func.grad, vmap and their like."""
    return _transform() is not None


def watch(lender: Lender) -> None:
    """From now on, as long as it lives."""
    _lenders.add(lender)
    graph.disable_saved_tensors_hooks = _disabled  # type: ignore[assignment]
    saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__ = _programs_enter, _programs_leave  # type: ignore[method-assign]


def innermost() -> tuple[Pack, Unpack] | None:
    """The functions that pack and unpack."""
    if _top is not None:
        return _top(True)  # type: ignore[no-any-return]
    return _entered.pairs[-1] if _entered.pairs else None


def owner() -> Any:
    """Whose method packs now: None where no hooks are, or where they are functions."""
    return owner_of(innermost())


def take_out_of(lender: Lender) -> bool:
    """The innermost keep no memory of this one's weights."""
    own = owner()
    return isinstance(own, TakesWeightsOut) and own.takes_out_of(lender)


def owner_of(pair: tuple[Pack, Unpack] | None) -> Any:
    return None if pair is None else getattr(pair[0], "__self__", None)


@contextlib.contextmanager
def between(pack: Pack, unpack: Unpack) -> Iterator[None]:
    """Ours, around what runs within."""
    push(pack, unpack)
    try:
        yield
    finally:
        pop()


def push(pack: Pack, unpack: Unpack) -> None:
    _push(pack, unpack)
    if _top is None:
        _entered.pairs.append((pack, unpack))


def pop() -> None:
    _pop()
    if _top is None:
        _entered.pairs.pop()


class Programs(TakesWeightsOut):
    """Hooks of the program's, as they are entered."""

    entered = 0  # of all models

    def __init__(self, hooks: saved_tensors_hooks) -> None:
        self.packs, self.unpacks = hooks.pack_hook, hooks.unpack_hook
        # A checkpoint stops its recompute behind the last tensor that was saved: it counts weights, too.
        self._counts = type(hooks).__qualname__ in ("_checkpoint_hook", "_recomputation_hook")

    def pack(self, tensor: torch.Tensor) -> Any:
        for lender in _lenders:
            taken = lender.take_out(tensor)
            if taken is not None:
                return Taken(lender, taken, self.packs(torch.empty(0)) if self._counts else None)
        for lender in _lenders:
            tensor = lender.kept_apart(tensor)
        return self.packs(tensor)

    def unpack(self, kept: Any) -> torch.Tensor:
        return kept.lender.give_again(kept.what) if type(kept) is Taken else self.unpacks(kept)


def _programs_enter(self: saved_tensors_hooks) -> None:
    if not _lenders:
        _enter(self)
        if _top is None:
            _entered.pairs.append((self.pack_hook, self.unpack_hook))
        return
    for lender in list(_lenders):
        lender.hooks_come()
    own = Programs(self)
    Programs.entered += 1
    push(own.pack, own.unpack)


def _programs_leave(self: saved_tensors_hooks, *args: object) -> None:
    pop()


@contextlib.contextmanager
def _disabled(message: str) -> Iterator[None]:
    """torch.func refuses to run within any hooks: ours are away meanwhile, the program's are its own affair."""
    away: list[tuple[Pack, Unpack]] = []
    while isinstance(owner(), TakesWeightsOut) and not isinstance(owner(), Programs):
        pair = innermost()
        assert pair is not None
        away.append(pair)
        pop()
    try:
        for lender in list(_lenders) if away else []:
            lender.give_copies()
        with _disable(message):
            yield
    finally:
        for pair in reversed(away):
            push(*pair)
