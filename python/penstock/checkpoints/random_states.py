"""The states of the generators that every program has: torch's, Python's, numpy's and the GPUs'. A step commits them as
they are when it ends; an opening that goes on puts them back.

Taking them costs 30 microseconds, and 60 more where the program has used numpy's.
"""
from __future__ import annotations

import random
import sys
from array import array
from typing import Any

import torch

from . import client_values

KEY = "random"  # in what a step commits


def taken() -> str:
    """As they are now."""
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": (version, array("I", words).tobytes(), gauss)}
    if "numpy.random" in sys.modules:
        states["numpy"] = sys.modules["numpy.random"].get_state(legacy=False)
    if torch.cuda.is_initialized():
        states["cuda"] = tuple(torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count()))
    return client_values.to_text(states, "the random states", compare=False)


def put(text: str) -> list[str]:
    """Whose states are back: of those that were taken, and that this program has."""
    states = client_values.from_text(text)
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(array("I", words)), gauss))
    back = ["torch", "Python"]
    if "numpy" in states and _put_numpy(states["numpy"]):
        back.append("numpy")
    if "cuda" in states and torch.cuda.is_available():
        for index, state in enumerate(states["cuda"][:torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
        back.append("CUDA")
    return back


def _put_numpy(state: dict[str, Any]) -> bool:
    """numpy may be gone, or the program may have another generator than the one whose state it is."""
    try:
        import numpy.random
        numpy.random.set_state(state)
    except (ImportError, ValueError):
        return False
    return True
