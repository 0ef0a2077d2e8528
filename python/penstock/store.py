"""Where a model in training is kept, and how: what penstock.initialize(store=...) takes."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal
from warnings import warn

import torch

from .errors import UsageError
from .given.said import Said

DEVICES = ("cpu", "cuda", "emulated")
Tier = Literal["nvme", "cpu"]
UpdateOrder = Literal["after_backward", "deferred", "within"]
ShowProgress = Callable[[str, int, int], None]  # (what is done, bytes done, bytes in all)
# Words of before for "within", which are still taken, and the share that each of them means.
OLDER_ORDERS: dict[str, float | Literal["auto"]] = {"in_backward": 0.0, "speculative": 0.0, "balanced": "auto"}


def setting(key: str, default: Any, read: Callable[[Any], Any] = lambda value: value, apart: bool = False) -> Any:
    """A field that a configuration's key says, too; `read` makes its value of the key's. `apart`: the core is told it by
    a member of its own, not among the settings by their keys."""
    return field(default=default, metadata={"key": key, "read": read, "apart": apart})


@dataclass(frozen=True)
class Store(Said):
    """Directories on local drives, and how much memory may be used. Two engines never share a store that is kept.

    An empty directory becomes a new store, with the model's weights as they are. A directory that holds this model is
    gone on from. Beside a configuration the two are merged: what only one of them says is obeyed, and where both say
    something of one setting, and not the same, penstock.initialize() refuses it by name. Directories that are given
    here go before the configuration's. `codec`, `gradient_type`, `tile_elements` and `device` decide bits; the other
    settings do not.

    directories: One path, or a list with one path for each drive; tiles are shared out equally.
    job: Owner of the store; the store of another owner is refused.
    resume_from: The path of a snapshot, from which the run goes on.
    go_back: What the store has committed since that snapshot is given up.
    keep: False: a store for one run, in a place that several runs may share. No step is committed, which writes less
        and takes half the room. Its files have no names and go with the engine, or with its process, however that
        ends. What is to outlive it is a checkpoint, or exported.
    host_budget_bytes: Limit of the pinned pool, which the ranks of a machine divide; 0: what `prefetch_depth` visits
        ahead take.
    prefetch_depth: Visits whose weights are read ahead, as far as the budget allows.
    staging_tiles: Tiles whose states are in memory at once.
    tile_elements: Elements of a tile, a multiple of 4096. A store keeps the number that it was made with.
    weights: Where weights are between visits: "nvme", or "cpu": in the host pool as well.
    states: The same for masters and moments.
    commit_steps: Steps from one commit to the next; a kill loses at most so many.
    update_order: When units are updated, to the same bits; docs/settings.md has a table of the three.
    deferred_share: Of what updates within backward move, the share that every step leaves to the next one's forward, 0
        to 1; "auto": so much that forward and backward each have as much to move as to compute.
    sum_order: Of several processes. "passes_first": each adds up its micro-batches, and its own sums of all units stay in
        memory until the step. "ranks_first": each micro-batch is added over the processes while its backward runs; memory
        has a process's own sums of two units. With several micro-batches a step it rounds otherwise, and takes as many
        times the bytes. None: what `zero_optimization.stage` of a configuration says, "ranks_first" from 2 on.
    verify: How much of the store is read and compared with its hashes when it is opened.
    snapshots: Memory for copies is planned, which checkpoints need.
    codec: How weights and states of 16-bit models are encoded: "split", "plain_bf16", "plain_fp16" or "compact",
        which is lossy. None: "split" for bfloat16, else plain.
    gradient_type: Of the sums of gradients. None: "bf16" for models of bfloat16 with up to eight micro-batches, else
        "fp32".
    gradients: Where gradients are from backward to their update, to the same bits. "nvme": memory has those of two
        units, the others are written and read once a step, and `p.grad` cannot be read. "auto": there where memory
        has no room for all of them.
    activation_budget_bytes: Of the pool, for what recomputed units were given, from forward to backward. What has no
        room there goes to NVMe and comes back. 0: all of it stays in torch's memory.
    fill_host_budget: What the host budget leaves, as far as the machine has it, keeps units' weights in host memory,
        then tiles of their states, which are not read then. Each opening chooses anew. Not "within" backward with
        clipping.
    trace: A file for the picture of some steps, JSON for ui.perfetto.dev, written when the engine is closed.
    trace_steps: The first and the last of those steps, counted from 1 at the opening.
    device: Where the model computes: "cpu", "cuda", "cuda:1"; "emulated" for tests. "cuda" is torch's current GPU, and of
        several processes each one's own.
    device_budget_bytes: Of the device's own memory, for weights and gradients; 0: half of what a GPU has free.
    threads: Of the update; 0: as many as torch has.
    deadline_seconds: A device that has not answered for so long is stuck, which is an error.
    progress: Called with (what is done, bytes done, bytes in all) of long work; None: the logger `penstock` is told.
    """

    directories: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    job: str = setting("run.name", "penstock")
    resume_from: str | os.PathLike[str] | None = None
    go_back: bool = False
    keep: bool = True
    host_budget_bytes: int = setting("memory.host_budget", 0)
    prefetch_depth: int = setting("memory.prefetch_depth", 2)
    staging_tiles: int = setting("memory.staging_tiles", 4)
    tile_elements: int = setting("memory.tile_elements", 1 << 20)
    weights: Tier = setting("zero_optimization.offload_param.device", "nvme")
    states: Tier = setting("zero_optimization.offload_optimizer.device", "nvme")
    commit_steps: int = setting("run.commit_every", 1)
    update_order: UpdateOrder = setting("run.update_order", "after_backward")
    deferred_share: float | Literal["auto"] = setting("run.deferred_share", 0.0)
    sum_order: Literal["passes_first", "ranks_first"] | None = setting("run.sum_order", None)
    verify: Literal["all", "sample", "none"] = setting("run.verify", "all")
    snapshots: bool = True
    codec: str | None = setting("memory.codec", None, lambda word: word if word == "compact" else None, apart=True)
    gradient_type: Literal["fp32", "bf16"] | None = setting("data_types.grad_accum_dtype", None, apart=True)
    gradients: Literal["cpu", "nvme", "auto"] = setting("memory.gradients", "cpu", apart=True)
    activation_budget_bytes: int = setting("memory.activation_budget", 0, lambda limit: limit or 0)
    fill_host_budget: bool = setting("memory.fill_host_budget", False)
    trace: str | os.PathLike[str] | None = None
    trace_steps: tuple[int, int] = (3, 5)
    device: str = setting("memory.device", "cpu", apart=True)
    device_budget_bytes: int = setting("memory.device_budget", 0)
    threads: int = setting("run.threads", 0)
    deadline_seconds: float = setting("aio.deadline", 120.0, float, apart=True)
    progress: ShowProgress | None = None

    def __post_init__(self) -> None:
        if self.update_order in [*OLDER_ORDERS]:  # whatever it is
            self._take_older_order(self.update_order)
        super().__post_init__()
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and value < 0:  # of which the core would make a very large one
                raise UsageError(f"Store({each.name}={value}): a number from 0")
        share: object = self.deferred_share
        if share != "auto" and not (isinstance(share, (int, float)) and share <= 1):
            raise UsageError(f"Store(deferred_share={share!r}): a share is 0 to 1, or 'auto'")

    def _take_older_order(self, word: str) -> None:
        said = self.__dict__["_given"] if self.said is None else self.said  # replace() gives all of them
        share = self.deferred_share if "deferred_share" in said else OLDER_ORDERS[word]
        object.__setattr__(self, "update_order", "within")
        object.__setattr__(self, "deferred_share", share)
        if share == "auto":
            self.__dict__["_given"] |= {"deferred_share"}
        also = ", deferred_share='auto'" if share == "auto" else ""
        warn(f"Store(update_order='{word}') is an older word for Store(update_order='within'{also})", FutureWarning,
             stacklevel=4)

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

    def at_newest(self) -> Store:
        return replace(self, resume_from=None, go_back=False, trace=None)

    def at_snapshot(self, path: str) -> Store:
        return replace(self, resume_from=path, go_back=True, trace=None)


STORE_KEYS: dict[str, str] = {each.name: each.metadata["key"] for each in fields(Store) if "key" in each.metadata}


def store_of(values: Mapping[str, Any], directories: Any) -> Store:
    """As a configuration says it: `values` has each key's."""
    return Store(directories, **{each.name: each.metadata["read"](values[each.metadata["key"]])
                                 for each in fields(Store) if "key" in each.metadata})


def settings_of(store: Store, **instead: Any) -> str:
    """What the core is told by keys, as JSON; `instead`: values of fields that are others there."""
    told = {}
    for each in fields(Store):
        if "key" in each.metadata and not each.metadata["apart"]:
            value = instead.get(each.name, getattr(store, each.name))
            if value is not None:
                told[each.metadata["key"]] = bool(value) if isinstance(each.default, bool) else value
    return json.dumps(told, default=lambda number: number.item())  # of NumPy, of torch


def as_store(given: Store | str | os.PathLike[str]) -> Store:
    """A directory's has the defaults."""
    return given if isinstance(given, Store) else Store(given)
