"""A checkpoint's weights in fp32, under the names of the model's state_dict(), by the calls that DeepSpeed's users know."""
from __future__ import annotations

import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ..errors import UsageError
from .export import save_directory
from .shards import divided, name_of, write_index
from .stored_weights import StoredWeights
from .unfinished import unfinished

AnyModule = TypeVar("AnyModule", bound=nn.Module)
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: str | os.PathLike[str], tag: str | None = None,
                                             exclude_frozen_parameters: bool = False, lazy_mode: bool = False
                                             ) -> dict[str, torch.Tensor]:
    """All in memory: masters where there are any. With `lazy_mode` each value is read by its contiguous()."""
    with StoredWeights(checkpoint_dir, tag) as weights:
        names = _names(weights, exclude_frozen_parameters)
        if lazy_mode:
            return {name: Lazy(checkpoint_dir, tag, weights.description.info(name).shape, name)  # type: ignore[misc]
                    for name in names}
        read: dict[Any, torch.Tensor] = {}  # what is tied stays one tensor
        return OrderedDict((name, _once(read, weights, name)) for name in names)


def load_state_dict_from_zero_checkpoint(model: AnyModule, checkpoint_dir: str | os.PathLike[str], tag: str | None = None
                                         ) -> AnyModule:
    """The model, on the CPU, with these weights; what it has not is passed over."""
    model = model.cpu()
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir: str | os.PathLike[str],
                                               output_dir: str | os.PathLike[str], max_shard_size: str | int = "5GB",
                                               safe_serialization: bool = False, tag: str | None = None,
                                               exclude_frozen_parameters: bool = False) -> None:
    """Files in `output_dir`, of at most `max_shard_size` each: model.safetensors, or pytorch_model.bin."""
    most = bytes_of(max_shard_size)
    with StoredWeights(checkpoint_dir, tag, under_model_names=True) as weights:
        if exclude_frozen_parameters:
            weights.leave_out_frozen()
        if safe_serialization:
            save_directory(weights, output_dir, torch.float32, most)
        else:
            _save_pickles(weights, Path(output_dir), _names(weights, exclude_frozen_parameters), most)


def bytes_of(size: str | int) -> int:
    """Of "5GB"."""
    found = re.fullmatch(r"(\d+)\s*([KMG]?I?B)?", str(size).upper())
    if found is None or int(found[1]) == 0:
        raise UsageError(f"max_shard_size: '{size}' is no size; write it as 5GB or 500MiB")
    return int(found[1]) * UNITS[found[2] or ""]


class Lazy:
    """A tensor that is not read yet."""

    def __init__(self, directory: str | os.PathLike[str], tag: str | None, shape: tuple[int, ...], name: str) -> None:
        self.shape, self.dtype = torch.Size(shape), torch.float32
        self._directory, self._tag, self._name = directory, tag, name

    def numel(self) -> int:
        return self.shape.numel()

    def contiguous(self) -> torch.Tensor:
        with StoredWeights(self._directory, self._tag) as weights:
            return _fp32(weights.value(self._name, master=True))


# Private.
def _names(weights: StoredWeights, without_frozen: bool) -> list[str]:
    said = weights.description
    return [name for name in said.tensors if not (without_frozen and said.is_frozen(name))]


def _once(read: dict[Any, torch.Tensor], weights: StoredWeights, name: str) -> torch.Tensor:
    place = weights.description.tensors[name]
    if place not in read:
        read[place] = _fp32(weights.value(name, master=True))
    return read[place]


def _fp32(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def _save_pickles(weights: StoredWeights, directory: Path, names: list[str], most: int) -> None:
    """Named when they are whole."""
    shards = divided(_tied(weights, names), lambda tied: _bytes(weights, tied[0]), most)
    with unfinished(directory / PICKLE, "not all is written") as place:
        weight_map: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            name = name_of(PICKLE, number, len(shards))
            read: dict[Any, torch.Tensor] = {}
            torch.save({each: _once(read, weights, each) for tied in shard for each in tied}, place / name)
            os.replace(place / name, directory / name)
            weight_map.update({each: name for tied in shard for each in tied})
        if len(shards) > 1:
            write_index(directory / PICKLE_INDEX, {"total_size": sum(_bytes(weights, each) for each in names)}, weight_map)


def _tied(weights: StoredWeights, names: list[str]) -> list[list[str]]:
    """The names of each tensor, which lie in one file."""
    by_place: dict[Any, list[str]] = {}
    for name in names:
        by_place.setdefault(weights.description.tensors[name], []).append(name)
    return list(by_place.values())


def _bytes(weights: StoredWeights, name: str) -> int:
    info = weights.description.info(name)
    width = 4 if info.dtype.is_floating_point else info.dtype.itemsize
    return torch.Size(info.shape).numel() * width
