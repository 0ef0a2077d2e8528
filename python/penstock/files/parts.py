"""A checkpoint's values where a model is divided over processes: in the place of a snapshot a directory with a file of
safetensors by each process that made it. Each value is whole in one of them, so any number of processes reads it."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ..core import What
from ..errors import StorageError, UsageError
from .safetensors_file import SafetensorsFile, SafetensorsWriter, TensorInfo

FILE = "part-{}.safetensors"
EXTRA = "extra"  # the bytes beside the weights


def are_parts(directory: Path) -> bool:
    """Whether it is such a directory, and no snapshot."""
    return (directory / FILE.format(0)).is_file()


def key_of(place: tuple[int, int], what: What) -> str:
    """Of a parameter, by unit and index."""
    return f"{place[0]}.{place[1]}.{what}"


class Part:
    """One process's file, which is durable once close() has returned."""

    def __init__(self, directory: Path, rank: int, infos: Mapping[str, TensorInfo]) -> None:
        self._path, self._infos = directory / FILE.format(rank), infos
        try:
            self._file = SafetensorsWriter(self._path, infos)
        except OSError as problem:
            raise self._cannot(problem) from problem

    def write(self, key: str, values: torch.Tensor) -> None:
        """Nothing of what is not this process's."""
        if key not in self._infos:
            return
        try:
            self._file.write(key, values)
        except OSError as problem:
            raise self._cannot(problem) from problem

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as problem:
            raise self._cannot(problem) from problem

    def abandon(self) -> None:
        """What is not whole stays, and nothing names it."""
        self._file.abandon()

    def _cannot(self, problem: OSError) -> StorageError:
        return StorageError(f"{self._path}: cannot be written ({problem.strerror}); see that there is room in the directory, "
                            "and that it may be written")


class Parts:
    """As native/reader.py has it of a store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        files = [SafetensorsFile(path) for path in sorted(directory.glob(FILE.format("*")))]
        self._files = {key: file for file in files for key in file.tensors}

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        """A flat copy."""
        key = key_of((unit, index), what)
        if key not in self._files and what == "weight":
            key = key_of((unit, index), "master")  # of a trained one, which the weight is a rounding of
        return self._value(key, what).flatten()

    def extra(self) -> torch.Tensor:
        return self._value(EXTRA, "buffer")

    def close(self) -> None:
        """No file is open between reads."""

    def _value(self, key: str, what: str) -> torch.Tensor:
        if key not in self._files:
            raise UsageError(f"{self._directory}: the checkpoint has no {what} of this parameter: it was made with another kind "
                             "of optimizer, or not all of its files are there; load_optimizer_states=False takes its weights")
        return self._files[key].read(key)
