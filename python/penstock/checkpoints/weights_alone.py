"""A checkpoint's weights and buffers into an engine that keeps its optimizer's states, its counters and its scheduler:
also of a checkpoint that was made with another optimizer or type."""
from __future__ import annotations

from pathlib import Path

import torch

from ..errors import EndedError, ModelError, StorageError, some
from ..files.stored_weights import StoredWeights
from ..step.visits import Visits
from ..weights import buffers
from ..weights.binding import Binding


def load(binding: Binding, visits: Visits, checkpoint: Path, strict: bool) -> None:
    """Durable with the next commit. `strict`: names and shapes are the same on both sides, else ModelError and nothing has
    happened; not: what the other side has not is passed over."""
    with StoredWeights(checkpoint) as stored:
        named = {name: each for name, each in binding.named.items() if name in stored.description.tensors}
        held = {name: stored.value(name, False) for name, place in stored.description.tensors.items() if isinstance(place, str)}
        if strict:
            check_names(binding, stored, checkpoint)
            buffers.check(binding.model, held)
        check_shapes(binding, stored, list(named), checkpoint)
        try:
            for name, parameter in named.items():
                learns = binding.learns(parameter)
                values = stored.value(name, master=True)
                visits.end()
                binding.write(parameter, values.float() if learns else values.to(parameter.dtype),
                              "master" if learns else "weight")
        except StorageError as error:
            raise EndedError(f"{error}; some weights are the checkpoint's by now and others are not: close the engine, and "
                             "open it anew") from error
    buffers.take(binding.model, held)


def check_names(binding: Binding, stored: StoredWeights, checkpoint: Path) -> None:
    there = {name for name, place in stored.description.tensors.items() if not isinstance(place, str)}
    own = {name for name, _ in binding.model.named_parameters(remove_duplicate=False)}
    if own != there:
        missing, more = sorted(own - there), sorted(there - own)
        said = [f"it has no {some(missing)}"] * bool(missing) + [f"the model has no {some(more)}"] * bool(more)
        raise ModelError(f"{checkpoint} is of another model: {'; '.join(said)}. load_checkpoint(load_module_strict=False) "
                         "takes what both have")


def check_shapes(binding: Binding, stored: StoredWeights, names: list[str], checkpoint: Path) -> None:
    for name in names:
        own, there = binding.named[name].shape, torch.Size(stored.description.info(name).shape)
        if own != there:
            raise ModelError(f"{checkpoint}: '{name}' has shape {tuple(there)} there and {tuple(own)} in the model")
