"""What a forward gives, whatever it lies in: tuples, lists, mappings, dataclasses, namespaces."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

DEEPEST = 8


def leaves_of(value: Any) -> list[Any]:
    """In an order that is the same for values of the same make. What has no attributes is a leaf."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[Any] = []
    _walk(value, found, 0)
    return found


def replaced(value: Any, is_one: Callable[[Any], bool], instead: Callable[[Any], Any]) -> Any:
    """Tensors of which `is_one` holds give way to others: in the containers that pytree knows in new ones, in all others
    in place."""
    def change(each: Any, depth: int = 0) -> Any:
        if isinstance(each, torch.Tensor):
            return instead(each) if is_one(each) else each
        if depth <= DEEPEST and _has_attributes(each):
            for key, inner in list(_items(each)):
                new = pytree.tree_map(lambda leaf: change(leaf, depth + 1), inner)
                if any(a is not b for a, b in zip(pytree.tree_leaves(inner), pytree.tree_leaves(new))):
                    _put(each, key, new)
        return each
    return pytree.tree_map(change, value)


def _walk(value: Any, found: list[Any], depth: int) -> None:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) or depth > DEEPEST or not _has_attributes(leaf):
            found.append(leaf)
        else:
            for _, inner in _items(leaf):
                _walk(inner, found, depth + 1)


def _has_attributes(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, Mapping) or (
        bool(kind.__dictoffset__) and not callable(value) and not isinstance(value, (nn.Module, type))
        and not kind.__module__.startswith(("torch.", "builtins")))


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else list(vars(value).items())


def _put(value: Any, key: Any, new: Any) -> None:
    if isinstance(value, Mapping):
        value[key] = new  # type: ignore[index]
    else:
        object.__setattr__(value, key, new)
