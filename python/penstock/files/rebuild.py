"""Buffers that no file has, such as rotary frequencies: the model makes them anew, or they are refused by name.

What makes such a buffer is known to the model's constructor alone. transformers 5 has it a second time, in
_init_weights(), for its own from_pretrained; this is what is called here, and what it leaves unwritten is found by a
pattern that was there before.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..errors import ModelError, some

PATTERN = 0xF5  # of each byte


def rebuilt_buffers(model: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Those on meta that are not persistent, with their values. The model is as it was."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    unwritten: list[str] = []
    for prefix, module, owner in _modules(model):
        keys = [key for key in module._non_persistent_buffers_set
                if module._buffers.get(key) is not None and module._buffers[key].is_meta]  # type: ignore[union-attr]
        if keys:
            made = _made_again(module, owner, sorted(keys))
            found += [(module._buffers[key], made[key]) for key in made]  # type: ignore[misc]
            unwritten += [f"{prefix}.{key}" if prefix else key for key in keys if key not in made]
    if unwritten:
        raise ModelError(f"buffers {some(sorted(unwritten), 20)} are on 'meta', and are in no file because they "
                         f"are not persistent; {type(model).__name__} does not say how they are made again: make the "
                         "model within penstock.zero.Init(empty=True), which leaves buffers as they are")
    return found


def _made_again(module: nn.Module, owner: Any, keys: list[str]) -> dict[str, torch.Tensor]:
    if owner is None:
        return {}
    before = {key: module._buffers[key] for key in module._buffers}
    flags: list[Any] = [each for each in (*module.parameters(recurse=False), *module.buffers(recurse=False))
                        if not hasattr(each, "_is_hf_initialized")]
    made = {key: _unwritten(module._buffers[key]) for key in keys}  # type: ignore[arg-type]
    for each in flags:
        each._is_hf_initialized = True  # transformers' own initialisers leave it alone then
    states = torch.get_rng_state()
    try:
        module._buffers.update(made)
        with torch.no_grad():
            owner._init_weights(module)
        made = {key: module._buffers[key] for key in keys}  # type: ignore[misc]
    except Exception:  # an _init_weights that does not expect to be called for buffers alone
        return {}
    finally:
        torch.set_rng_state(states)
        module._buffers.update(before)
        for each in flags:
            del each._is_hf_initialized
    return {key: each for key, each in made.items() if not each.is_meta and not _is_unwritten(each)}


def _unwritten(like: torch.Tensor) -> torch.Tensor:
    """Of values that no such buffer has: -6e32 in fp32, an integer far below 0."""
    made = torch.empty(like.shape, dtype=like.dtype)
    made.reshape(-1).view(torch.uint8).fill_(PATTERN)
    return made


def _is_unwritten(values: torch.Tensor) -> bool:
    """Some element is as it was."""
    elements = values.contiguous().reshape(-1).view(torch.uint8).view(-1, values.element_size())
    return bool((elements == PATTERN).all(dim=1).any())


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Each module with the innermost model of transformers that it belongs to, or None."""
    owners: dict[str, Any] = {}
    for name, module in model.named_modules():
        owner = owners.get(name.rpartition(".")[0]) if name else None
        owners[name] = module if hasattr(module, "_init_weights") and hasattr(module, "config") else owner
        yield name, module, owners[name]
