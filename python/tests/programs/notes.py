"""What a program saw, as lines that are equal where the bits are."""
from __future__ import annotations

import collections
import hashlib
import random
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import nn


def rendered(value: Any, depth: int = 5) -> str:
    """Tensors and arrays by their bytes; generators by their states; what is no value by its type."""
    if isinstance(value, nn.Parameter) or depth == 0:
        return type(value).__name__ if depth == 0 else "a parameter"
    if isinstance(value, torch.Tensor):
        flat = value.detach().to_dense().reshape(-1).contiguous()
        first = [f"{each:.9g}" for each in flat[:2].double().tolist()]
        return f"{value.dtype} {tuple(value.shape)} {_hash(flat.view(torch.uint8).numpy().tobytes())} {first}"
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return repr(value)
    if isinstance(value, (list, tuple, collections.deque)):
        return f"{type(value).__name__}[{', '.join(rendered(each, depth - 1) for each in value)}]"
    if isinstance(value, (set, frozenset)):
        return f"set[{', '.join(sorted(rendered(each, depth - 1) for each in value))}]"
    if isinstance(value, (dict, collections.UserDict)):
        return f"dict[{', '.join(f'{key}: {rendered(each, depth - 1)}' for key, each in value.items())}]"
    return _rendered_object(value, depth)


def _rendered_object(value: Any, depth: int) -> str:
    if isinstance(value, torch.Generator):
        return rendered(value.get_state())
    if isinstance(value, random.Random):
        return _hash(repr(value.getstate()).encode())
    if isinstance(value, numpy.random.Generator):
        return _hash(repr(value.bit_generator.state).encode())
    if isinstance(value, numpy.random.RandomState):
        return _numpy_state(value.get_state())
    if isinstance(value, SimpleNamespace) or type(value).__module__.startswith("programs."):
        return f"{type(value).__name__}({rendered(vars(value), depth - 1)})"
    return type(value).__name__


def _numpy_state(state: Any) -> str:
    return _hash(state[1].tobytes() + repr(state[2:]).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()[:12]


# What a managed module's attributes have beside the program's, and what is looked at elsewhere.
LEFT_OUT = {"forward", "takes", "gives", "others", "reads", "calls_of", "count", "factors", "label", "views",
            "weight"}  # the last of old norms


def attributes(model: nn.Module) -> list[str]:
    """Of all modules: whatever they have beside parameters, buffers and modules, old norms' weights left out."""
    lines = []
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key.startswith("_") or key in LEFT_OUT or callable(value):
                continue
            lines.append(f"{name}.{key} = {rendered(value)}")
    return lines


def random_states() -> list[str]:
    return [f"torch's random state {rendered(torch.get_rng_state())}",
            f"Python's random state {_hash(repr(random.getstate()).encode())}",
            f"numpy's random state {_numpy_state(numpy.random.get_state())}"]


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


