"""A model on meta, all of it or a part, over a store that has its weights already: nothing is read of the model."""
from __future__ import annotations

import torch
from torch import nn

from ..errors import ModelError
from ..native.look import look
from ..store import Store
from .incoming import exchange, make_nan, refuse_other_meta_tensors
from .rebuild import rebuilt_buffers
from .spill import first_value


class InStore:
    """As Incoming, of what the store gives when it is open. Raises ModelError for what is on meta and in no store."""

    def __init__(self, model: nn.Module) -> None:
        refuse_other_meta_tensors(model)
        self._model, self._rebuilt = model, rebuilt_buffers(model)

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """For a store that has it not after all."""
        if tensor.is_meta:
            raise ModelError("the model is on 'meta', and the store has no weights yet: penstock.initialize(weights=...) "
                             "names a directory that has them")
        return first_value(tensor)

    def make_buffers_real(self) -> None:
        """Persistent ones have memory; their values come with the store's."""
        for buffer, value in self._rebuilt:
            exchange(buffer, value)
        for each in list(self._model.buffers()):
            if each.is_meta:
                exchange(each, torch.zeros_like(each, device="cpu"))

    def make_parameters_real(self) -> None:
        """A single NaN each, as they are released."""
        for each in list(self._model.parameters()):
            if each.is_meta:
                make_nan(each)


def has_weights(store: Store) -> bool:
    """Whether an opening goes on from weights that were committed. Raises StorageError."""
    if store.resume_from is not None:
        return True
    return store.keep and look(store.paths()[0]).content != "nothing"
