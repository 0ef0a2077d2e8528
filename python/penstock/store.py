"""Where a model in training is kept, and how: what penstock.initialize(store=...) takes."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from .core import Core, ModelSpec, ReadWeight
from .errors import UsageError
from .native.core import NativeCore
from .native.structs import DEVICES
from .said import Said

Tier = Literal["nvme", "cpu"]
ShowProgress = Callable[[str, int, int], None]  # (what is done, bytes done, bytes in all)


@dataclass(frozen=True)
class Store(Said):
    """Directories on local drives, one per drive, and how much memory may be used. Two engines never share one that is
    kept.

    A directory that is empty becomes a new store, with the model's weights as they are; one that holds this model is
    gone on from. `host_budget_bytes` is the limit of the pinned pool, 0: what `prefetch_depth` visits ahead take.
    `keep` False: a store for one run, in a place that several may share. No step is committed, which writes less and
    takes half the room; its files have no names, and go with the engine, or with its process, however that ends. What is
    to outlive it is a checkpoint, or exported. `commit_steps`: a kill loses at most so many steps. `update_order`, to the same bits: "deferred" updates each unit
    as the next step first needs it, while states of the next ones are read, and a kill loses the newest finished step,
    too; "in_backward" each as soon as backward has left it, of steps that clip nothing, by the last backward before the
    step (gradient_accumulation_steps says which it is); "speculative" clips, too, with commit_steps 1 and all on NVMe:
    a step that is clipped after all is updated again within the next; after two, and at first, one is deferred;
    "balanced" takes some units within backward and defers the others, so that the drives are as busy in forward as in
    backward. `codec`: how weights and states of 16-bit models are encoded ("split", "plain_bf16", "plain_fp16",
    "compact"), None: "split" for bfloat16, else plain. `gradients`, to the same bits: where they are from backward to
    the update; "nvme" has those of two units in memory, the others are written and read once a step (with "in_backward"
    neither, where a step has one backward; "speculative" and "balanced" read theirs only to update again), and `p.grad`
    is not there to look at; "auto" does so where memory has no room for all of them. `activation_budget_bytes`: of the
    pool, for what recomputed units were given, from forward to backward; what has no room there goes to NVMe and comes
    back, 0: all of it stays in torch's memory. `fill_host_budget`: what the host budget leaves, as far as the machine
    has it, keeps units' weights in host memory, then tiles of their states, which are not read then; chosen at each
    opening, not with "speculative", nor with "balanced" and clipping. `trace`: a file for the picture of some steps,
    Chrome's JSON for ui.perfetto.dev, written when the engine is closed; of the steps since the opening those from the
    first to the last of `trace_steps`, counting from 1.

    Beside a configuration the two are merged: what is given here is obeyed, what only the configuration says as well,
    and where both say something of one setting, and not the same, penstock.initialize() refuses it by name. Directories
    are those that are given here.
    """

    directories: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    job: str = "penstock"
    resume_from: str | os.PathLike[str] | None = None  # a snapshot
    go_back: bool = False
    keep: bool = True
    host_budget_bytes: int = 0
    prefetch_depth: int = 2
    staging_tiles: int = 4
    tile_elements: int = 1 << 20
    weights: Tier = "nvme"
    states: Tier = "nvme"
    commit_steps: int = 1
    update_order: Literal["after_backward", "deferred", "in_backward", "speculative", "balanced"] = "after_backward"
    verify: Literal["all", "sample", "none"] = "all"
    snapshots: bool = True
    codec: str | None = None
    gradient_type: Literal["fp32", "bf16"] | None = None  # None: fp32; bf16 for models of bfloat16
    gradients: Literal["cpu", "nvme", "auto"] = "cpu"
    activation_budget_bytes: int = 0
    fill_host_budget: bool = False
    trace: str | os.PathLike[str] | None = None
    trace_steps: tuple[int, int] = (3, 5)
    device: str = "cpu"  # where the model computes: "cpu", "cuda", "cuda:1"; "emulated" for tests
    device_budget_bytes: int = 0  # of its own memory; 0: half of what a GPU has free
    threads: int = 0  # of the update; 0: as many as torch has
    deadline_seconds: float = 120.0
    progress: ShowProgress | None = None

    @staticmethod
    def in_memory(**said: Any) -> Store:
        """Without a disk: host memory alone has weights and states, all of them, and they go with the engine. No file is
        made but checkpoints and exports that are asked for. FitError where memory has no room."""
        return Store(tempfile.gettempdir(), keep=False, weights="cpu", states="cpu", **said)

    @property
    def is_in_memory(self) -> bool:
        return not self.keep and self.weights == "cpu" and self.states == "cpu"

    def paths(self) -> list[str]:
        one = isinstance(self.directories, (str, os.PathLike))
        listed = [self.directories] if one else list(self.directories)  # type: ignore[arg-type]
        return [os.fspath(each) for each in listed]  # type: ignore[arg-type]

    def torch_device(self) -> torch.device:
        """Where torch computes."""
        kind, _, index = self.device.partition(":")
        if kind not in DEVICES or (index and (kind != "cuda" or not index.isdecimal())):
            raise UsageError(f"Store(device='{self.device}'), memory.device of a configuration: there are 'cpu', "
                             "'cuda', and 'cuda:N' for the GPU of that number")
        if kind != "cuda":
            return torch.device("cpu")
        if not torch.cuda.is_available():
            raise UsageError(f"Store(device='{self.device}'): torch finds no GPU (torch.cuda.is_available() is False)")
        return torch.device("cuda", int(index) if index else torch.cuda.current_device())

    def __call__(self, model: ModelSpec, first: ReadWeight) -> Core:
        return NativeCore(model, first, self)

    def at_newest(self) -> Store:
        return replace(self, resume_from=None, go_back=False, trace=None)

    def at_snapshot(self, path: str) -> Store:
        return replace(self, resume_from=path, go_back=True, trace=None)
