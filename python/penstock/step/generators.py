"""Generators of random numbers: torch's, numpy's and Python's, those of the program and those that a unit has of its own."""
from __future__ import annotations

import copy
import ctypes
import random
import sys
from typing import Any

import torch

State = Any


def state_of(value: Any) -> State | None:
    """Of a generator; None of anything else."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    bits = _numpys_bits(value)
    if bits is None:
        return None
    return value.get_state() if _has_halves(value) else copy.deepcopy(bits.state)


def is_one(value: Any) -> bool:
    """A generator of torch's, numpy's or Python's."""
    return isinstance(value, (torch.Generator, random.Random)) or _numpys_bits(value) is not None


def set_state(value: Any, state: State) -> None:
    if isinstance(value, torch.Generator):
        value.set_state(state)
    elif isinstance(value, random.Random):
        value.setstate(state)
    elif _has_halves(value):
        value.set_state(state)
    else:
        _numpys_bits(value).state = state


def _has_halves(value: Any) -> bool:
    """numpy's RandomState has half of a pair of normal values in store."""
    return type(value).__name__ == "RandomState"


def _numpys_bits(value: Any) -> Any:
    """What numpy's generators of both kinds draw from; None of anything else."""
    if not type(value).__module__.startswith("numpy"):
        return None
    return getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None)


class ProgramsGenerators:
    """The states of the program's own generators: torch's on the CPU and on `device`, Python's and numpy's.

    Python's and numpy's take 8 and 31 us to copy. Their positions are looked at in place (0.3 us), and the last copy
    serves as long as these have not moved. Where a look does not show what a copy says, copies are made each time."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._gpu = torch.cuda.default_generators[device.index or 0] if device is not None and device.type == "cuda" \
            else None
        self._python = _PythonsPosition.where_it_shows()
        self._numpy: _NumpysPosition | None = None
        self._seen: Any = None  # where both stood at the last copy
        self._copy: tuple[State, State] = (None, None)

    def now(self) -> State:
        numpy = sys.modules.get("numpy")
        if numpy is not None and self._numpy is None and hasattr(numpy, "random"):
            self._numpy = _NumpysPosition(numpy)
        seen = self._position()
        if seen is None or seen != self._seen:
            self._copy = random.getstate(), numpy.random.get_state() if self._numpy is not None and numpy else None
            # Half of a pair of normal values may be in store: taking it moves no position.
            half = self._copy[1] is not None and self._copy[1][3]
            self._seen = None if half else seen
        return torch.get_rng_state(), self._gpu.get_state() if self._gpu is not None else None, self._copy

    def set(self, state: State) -> None:
        torch.set_rng_state(state[0])
        if self._gpu is not None and state[1] is not None:
            self._gpu.set_state(state[1])
        pythons, numpys = state[2]
        if self._seen is not None and self._copy is state[2] and self._position() == self._seen:
            return
        self._seen = None
        random.setstate(pythons)
        if numpys is not None:
            sys.modules["numpy"].random.set_state(numpys)

    # Private.
    def _position(self) -> Any:
        if self._python is None or (self._numpy is not None and not self._numpy.shows):
            return None
        return (*self._python.now(), *(self._numpy.now() if self._numpy is not None else ()))


class _PythonsPosition:
    """The position and the first words of Python's generator, read where it has them: 624 words and an index."""

    def __init__(self) -> None:
        end = id(random._inst) + random.Random.__base__.__basicsize__  # type: ignore[union-attr]
        self._words = (ctypes.c_uint32 * 626).from_address(end - 4 * 626)

    @classmethod
    def where_it_shows(cls) -> _PythonsPosition | None:
        """None where this Python has it elsewhere."""
        there, (_, words, _) = cls(), random.getstate()
        return there if tuple(there._words[:3]) == (words[624], words[0], words[1]) else None

    def now(self) -> tuple[Any, ...]:
        return self._words[0], self._words[1], self._words[2], random._inst.gauss_next  # type: ignore[attr-defined]


class _NumpysPosition:
    """The same of numpy's global one: 624 words, then the index."""

    def __init__(self, numpy: Any) -> None:
        self.shows = False
        try:
            at = numpy.random.mtrand._rand._bit_generator.ctypes.state_address
            self._words = (ctypes.c_uint32 * 625).from_address(at)
            _, words, position, *_ = numpy.random.get_state()
            self.shows = (self._words[624], self._words[0], self._words[1]) == (position, words[0], words[1])
        except Exception:  # another generator than the one that numpy begins with: copies are made
            return

    def now(self) -> tuple[int, ...]:
        return self._words[624], self._words[0], self._words[1]
