"""A directory of weights as Hugging Face keeps it: one safetensors file, or shards and their index."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from ..errors import WeightsError, some
from .safetensors_file import SafetensorsFile, TensorInfo, is_utf8

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class WeightsDir:
    """Headers are read and checked when it is made, values when they are asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise WeightsError(f"weights: {self.path} is no directory; download the model, and name the folder with "
                               f"its config.json and {SINGLE}")
        self._files: dict[str, SafetensorsFile] = {}  # by the tensor's name
        if (self.path / SINGLE).exists():
            self._take(SafetensorsFile(self.path / SINGLE))
        elif (self.path / INDEX).exists():
            self._take_shards(self._weight_map())
        else:
            raise WeightsError(self._nothing())

    def __contains__(self, name: object) -> bool:
        return name in self._files

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def info(self, name: str) -> TensorInfo:
        return self._files[name].tensors[name]

    def read(self, name: str) -> torch.Tensor:
        return self._files[name].read(name)

    # Private.
    def _nothing(self) -> str:
        pickles = [each for each in PICKLES if (self.path / each).exists()]
        if pickles:
            return (f"weights: {self.path} has {some(pickles)}, which is a pickle, a program to be run, "
                    f"and no {SINGLE}: write it as safetensors once, by "
                    "AutoModel.from_pretrained(directory).save_pretrained(another)")
        return f"weights: {self.path} has neither {SINGLE} nor {INDEX}: name the directory that has them"

    def _weight_map(self) -> dict[str, str]:
        path = self.path / INDEX
        try:
            said: Any = json.loads(path.read_bytes().decode("utf-8"))
        except OSError as error:
            raise WeightsError(f"{path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise WeightsError(f"{path}: no JSON ({error}); download it again") from error
        found = said.get("weight_map") if isinstance(said, dict) else None
        if not isinstance(found, dict) or not found or not all(
                isinstance(file, str) and is_utf8(name) and is_utf8(file) for name, file in found.items()):
            raise WeightsError(f"{path}: it has no weight_map from names of tensors to names of files; download it "
                               "again")
        return found

    def _take_shards(self, weight_map: dict[str, str]) -> None:
        shards = sorted(set(weight_map.values()))
        outside = [each for each in shards if Path(each).name != each or each in ("", ".", "..") or "\0" in each]
        if outside:
            raise WeightsError(f"{self.path / INDEX}: {', '.join(map(ascii, outside))}: no names of files in this "
                               "directory; download it again")
        gone = [each for each in shards if not (self.path / each).exists()]
        if gone:
            raise WeightsError(f"weights: {self.path} lacks {some(gone, 20)}, which {INDEX} names: download them")
        for each in shards:
            self._take(SafetensorsFile(self.path / each), weight_map)
        absent = [name for name in weight_map if name not in self._files]
        if absent:
            raise WeightsError(f"weights: {INDEX} of {self.path} names tensors that its files do not have: "
                               f"{some(absent, 20)}; index and files are not of one model, download them again")

    def _take(self, file: SafetensorsFile, weight_map: dict[str, str] | None = None) -> None:
        for name in file.tensors:
            if weight_map is None or weight_map.get(name, file.path.name) == file.path.name:
                self._files[name] = file
