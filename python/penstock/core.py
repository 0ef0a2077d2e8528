"""What the client needs of a core: the protocol, and the small values that cross it.

A core keeps a model by names, shapes and bytes: it brings weights to memory when they are asked for, sums gradients,
updates and commits. It knows no modules and no graphs. One caller at a time, on any thread; calls that wait release
Python's lock. Tensors that it hands out are flat views of its own memory, of the parameter's type.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import torch

PassKind = Literal["training", "inference"]
What = Literal["weight", "master", "moment0", "moment1"]
OptimizerKind = str  # a name of optimizer_kinds.KINDS
BF16_ADDENDS = 8  # gradients that a sum in bfloat16 takes: zero_infinity/plan/core_options.h
Visit = tuple[int, ...]  # the units whose weights compute reads at once
ReadWeight = Callable[[int, int], torch.Tensor]  # (unit, index) -> the parameter's first value


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter of a unit; `group` counts the optimizer's groups and is 0 where it is frozen."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    trainable: bool
    group: int = 0
    without_gradient: Literal["refused", "skipped"] = "skipped"  # skipped as torch does: no decay, own step count

    @property
    def numel(self) -> int:
        return torch.Size(self.shape).numel()


@dataclass(frozen=True)
class UnitSpec:
    """What is gathered and released as a whole. A resident one stays in memory at one address."""

    name: str
    parameters: tuple[ParameterSpec, ...]
    resident: bool = False


@dataclass(frozen=True)
class GroupValues:
    """What an optimizer's group says about one step; an optimizer reads those that it knows."""

    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    lr_decay: float = 0.0


@dataclass(frozen=True)
class ModelSpec:
    """What is trained. `training` and `inference` are the visits that are expected, as far as they are known; `groups`
    is what the optimizer's groups say now."""

    units: tuple[UnitSpec, ...]
    optimizer: OptimizerKind
    training: tuple[Visit, ...] = ()
    inference: tuple[Visit, ...] = ()
    initial_accumulator: float = 0.0  # of Adagrad: the first value of its moment
    groups: tuple[GroupValues, ...] = ()
    extra: torch.Tensor | None = None  # bytes that are kept beside the weights, as they are at first
    micro_batches: int = 1  # of a step; of more than BF16_ADDENDS gradients are summed in fp32
    client_state: Mapping[str, str] = field(default_factory=dict)  # what a new store commits with its first weights
    forwards_alone: bool = False  # weights are read and nothing else: no gradients, no updates, no writes
    clips: bool = False  # steps may be clipped


@dataclass(frozen=True)
class UpdateRequest:
    """One step. `clip` is the largest global norm, 0: none; the sums are `loss_scale` times the gradient."""

    step: int
    groups: Sequence[GroupValues]
    clip: float = 0.0
    loss_scale: float = 1.0
    may_skip: bool = False  # a gradient that is not finite ends in a report and changes nothing
    client_state: Mapping[str, str] = field(default_factory=dict)
    extra: torch.Tensor | None = None  # the bytes beside the weights, where the model has any


@dataclass(frozen=True)
class UpdateReport:
    """What came of it. `gradient_norm` is before clipping, of the gradient itself; None where nobody asked for it."""

    gradient_norm: float | None
    updated: bool
    committed: bool
    committed_before: bool = False  # the step before it is durable
    updated_again: bool = False  # it was begun within backward, and was clipped after all


@dataclass(frozen=True)
class CoreFigures:
    """What a core takes, in bytes, and what it has done since its opening. A core that says nothing of itself has
    these."""

    host_bytes: int = 0  # pinned, at most so far
    host_uses: Mapping[str, int] = field(default_factory=dict)  # what the pool is divided into, by its words
    nvme_bytes: int = 0  # of the store
    device_bytes: int = 0  # of the device's own memory
    read_bytes: int = 0  # of NVMe
    write_bytes: int = 0
    waited_ns: int = 0  # compute and the update, for I/O


class OpenSum(NamedTuple):
    """Where a gradient's sum lies, in its parameter's shape, for the client to write (`fresh`: it holds nothing yet) or to add
    to."""

    memory: torch.Tensor
    fresh: bool


class Core(Protocol):
    """A model in training. Raises PenstockError and its kinds; after StorageError it may only be closed."""

    units: Sequence[UnitSpec]
    device: torch.device  # where weights and open sums are; whatever else it hands out is in host memory
    # The client state of the generation it has gone on from; None: the store is new, its weights came from the client.
    resumed: Mapping[str, str] | None
    user_state: MutableMapping[str, str]  # committed with every step
    begun: int | None  # the step whose units are updated one by one, until its update()
    lays: bool  # it has room where things are laid aside
    opening: int  # of the store: 0 first; another one after go_back()
    changes: int  # one more with each update, write and return to a snapshot
    kept: bool  # another process can go on from what was committed
    gradients_leave: bool  # for NVMe, or may: then gradient() raises UsageError of what has no address
    over_ranks: bool  # of several processes: gradient() and make_gradient() are calls of all, and give the mean

    # Passes. Updates, reads and writes come between them.
    def expect(self, kind: PassKind, visits: Iterable[Visit]) -> None: ...

    def begin_pass(self, kind: PassKind) -> None: ...

    def visit(self, units: Visit, held: Visit = ()) -> None:
        """Blocks until the weights of `units` are readable. What the last visit or `held` made readable and this one
        names in either list keeps its address; all else may be overwritten from now on. A unit in `held` was readable
        before."""

    def end_pass(self) -> None: ...

    def weights(self, unit: int, index: int) -> torch.Tensor:
        """Of a resident unit at any time, at one address; of others while they are readable. Each has a storage of its own,
        so that those who have a view of it can be counted."""

    def where(self, unit: int) -> Hashable:
        """The place of a unit that is readable: while it is the same, weights() gives the same memory."""

    # Gradients, summed over passes until the update; at any time, also within a pass.
    def open_gradient(self, unit: int, index: int) -> OpenSum: ...

    def gradient(self, unit: int, index: int) -> torch.Tensor | None:
        """The sum, which the client may change in place, in a storage of its own; None when no addend has come. At one
        address until cleared, or, of several processes, until the next addend. Raises UsageError of one that leaves for
        NVMe."""

    def make_gradient(self, unit: int, index: int) -> torch.Tensor:
        """The same; zeros, which count as there, when no addend has come."""

    def clear_gradient(self, unit: int, index: int) -> None: ...

    def clear_gradients(self) -> None: ...

    def gradient_norm(self) -> float: ...

    # What is laid aside in forward and taken again in backward; at any time. REQUIRES: `lays`.
    def lay(self, turn: int, count: int) -> torch.Tensor:
        """So many bytes of memory, to be filled before the next of these calls. Lower turns are taken first; one thing
        each."""

    def take(self, turn: int) -> torch.Tensor:
        """The bytes that were laid aside; until the next of these calls."""

    def drop(self, turn: int) -> None: ...

    # Steps.
    def begin_step(self, request: UpdateRequest) -> bool:
        """Before the training pass that brings a step's last gradients, or within it: whether units may be updated
        within it. Else nothing has happened. Until update(), whose request is the same but for what is committed with
        it, only that pass and complete() follow."""

    def complete(self, unit: int) -> None:
        """The unit is updated now: no gradient comes to it any more, and the pass reads it no more. The last visit has
        it."""

    def update(self, request: UpdateRequest) -> UpdateReport:
        """Clips, updates every parameter that a gradient came to, clears the gradients, commits."""

    def settle(self) -> None:
        """Commits the newest step, if it is not."""

    def gather(self, what: str, mine: bytes) -> list[bytes]:
        """What each of several processes says, in their order; as many bytes of each. All of them call it, between the same
        others of their calls: one that calls another, or says another `what`, ends all with an error that names both."""

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        """A flat copy; fp32 for all but weights. Between passes."""

    def write(self, unit: int, index: int, what: What, values: torch.Tensor) -> None:
        """Replaces it, and for weights the master. Between passes; durable with the next commit."""

    def extra(self) -> torch.Tensor:
        """A copy of the bytes beside the weights. Between passes."""

    def begin_snapshot(self, path: str) -> None:
        """Copies the newest step into the new directory `path` while training goes on."""

    def copies_snapshot(self) -> bool:
        """Whether one is under way."""

    def finish_snapshot(self) -> None:
        """Blocks until the copy under way is whole; raises what became of it."""

    def go_back(self, path: str) -> Mapping[str, str]:
        """The model is that of the snapshot, durably; gradients are cleared. Its client state."""

    def memory_table(self) -> str: ...

    def notes(self) -> list[str]:
        """Lines for the log that came up since the last call."""

    def close(self) -> None: ...


def figures_of(core: Core) -> CoreFigures:
    """What it says by its figures(), if it has that."""
    said: Callable[[], CoreFigures] | None = getattr(core, "figures", None)
    return CoreFigures() if said is None else said()


class OpenCore(Protocol):
    """Makes a core on a store. `first` gives each parameter of a new store once, in the order of the units; a store
    that has a generation goes on from it and does not ask."""

    def __call__(self, model: ModelSpec, first: ReadWeight) -> Core: ...
