"""A model's values out of a store or a snapshot that nobody trains in (zero_infinity/capi/penstock_reader.h)."""
from __future__ import annotations

import ctypes
from types import TracebackType

import torch

from . import structs as c
from ..core import ModelSpec, What
from ..store import Store
from .described import Described
from .session import reading


class Reader(Described):
    """Holds the store, beside other readers, until it is closed. Raises StorageError where a training has it open."""

    def __init__(self, model: ModelSpec, store: Store) -> None:
        super().__init__(model, store)
        self._reading, self._open = reading(), ctypes.c_void_p()
        given, kept = self._c_model()
        options = self._c_options(store, c.FirstWeights(0), kept, [])
        self._reading["open"](ctypes.byref(given), ctypes.byref(options), ctypes.byref(self._open))

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        """Flat; fp32 for all but weights."""
        spec = self._spec((unit, index))
        values = torch.empty(spec.numel, dtype=spec.dtype if what == "weight" else torch.float32)
        return self._into(values, *self._place_of[unit, index], what)

    def extra(self) -> torch.Tensor:
        """The bytes beside the weights."""
        assert self._model.extra is not None
        return self._into(torch.empty_like(self._model.extra), len(self._parts), 0, "weight")

    def close(self) -> None:
        self._reading["close"](self._open)
        self._open = ctypes.c_void_p()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    # Private.
    def _into(self, values: torch.Tensor, unit: int, index: int, what: What) -> torch.Tensor:
        self._reading["read"](self._open, unit, index, c.WHAT[what], values.data_ptr(), values.nbytes)
        return values
