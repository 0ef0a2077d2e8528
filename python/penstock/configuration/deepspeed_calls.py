"""Arguments and calls of programs that were written for DeepSpeed: what has a meaning here is obeyed, what can be
nothing in one process is nothing, and the others are named."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import UsageError
from ..given.argument_names import check_names

if TYPE_CHECKING:
    from ..core import Core
    from ..optimizer import Optimizer
    from ..ranks.group import Group
    from ..settings import Settings
    from .config import Given

STEP = "here a step is loss = engine(batch), engine.backward(loss) and engine.step()"
FIXED = "batch sizes are those of penstock.initialize(config=...): initialize anew with others"
ABSENT = {
    "train_batch": f"it is of DeepSpeed's pipelines, which know the loss; {STEP}",
    "eval_batch": "it is of DeepSpeed's pipelines, which know the loss; call the engine under torch.no_grad()",
    "inference_batch": "it is of DeepSpeed's pipelines; call the engine under torch.no_grad()",
    "set_train_batch_size": FIXED, "set_train_micro_batch_size": FIXED,
    "deepspeed_io": "a loader is made by penstock.initialize(training_data=...)",
    "offload_states": "where things are kept is Store(weights=..., states=...)",
    "reload_states": "where things are kept is Store(weights=..., states=...)",
    "save_fp16_model": "it is engine.save_16bit_model()",
}
INIT_NOTHING = {"data_parallel_group", "mem_efficient_linear", "remote_device", "pin_memory", "config_dict_or_path",
                "config", "sequence_data_parallel_group", "zero_param_parallel_group", "param_swapper"}
INIT_NAMED = {
    "module": "a model that is there is taken to the store by penstock.initialize(); make one within `with "
              "penstock.zero.Init():`",
    "mpu": "a model in parts over several processes is not there",
    "zero_quantized_weights": "numbers would be quantized",
    "zero_quantized_nontrainable_weights": "numbers would be quantized",
}


class NoSuchCallError(UsageError, AttributeError):
    """A call of DeepSpeed's that the engine does not have."""


def config_of(config: Given | None, config_params: Given | None, args: Any) -> Given | None:
    """The one configuration: DeepSpeed also takes it by its older name, and out of the program's command line."""
    named = {"config": config, "config_params": config_params, "args.deepspeed_config": _of_command_line(args)}
    given = {name: each for name, each in named.items() if each is not None}
    first, *others = given.values() or [None]
    if any(not _same(first, each) for each in others):
        raise UsageError(f"penstock.initialize(): {' and '.join(given)} are different configurations; give one")
    return first


def check_arguments(mpu: Any, mesh_param: Any, dist_init_required: bool | None) -> None:
    """Those that mean something for several processes alone."""
    for name, value in {"mpu": mpu, "mesh_param": mesh_param}.items():
        if value is not None:
            raise UsageError(f"penstock.initialize({name}=...): a model in parts over several processes is not there; "
                             "leave it out")
    if dist_init_required and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise UsageError("penstock.initialize(dist_init_required=True): no process group is made, because one process "
                         "needs none; leave it out, or call torch.distributed.init_process_group() before")


def check_init(given: Mapping[str, Any]) -> None:
    """Arguments of deepspeed.zero.Init: where weights are, and of how many processes, is decided by the opening."""
    check_names("penstock.zero.Init", given, ("directory", "empty", "enabled", "dtype", *INIT_NAMED, *INIT_NOTHING))
    for name, value in given.items():
        if name in INIT_NAMED and value:
            raise UsageError(f"penstock.zero.Init({name}=...): {INIT_NAMED[name]}")


def _of_command_line(args: Any) -> Any:
    said = args if isinstance(args, Mapping) else vars(args) if hasattr(args, "__dict__") else {}
    return said.get("deepspeed_config") or said.get("deepscale_config")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        return bool(one == other)
    return str(one) == str(other)


class DeepSpeedsCalls(nn.Module):
    """What an engine answers beside its own calls."""

    core: Core
    settings: Settings
    optimizer: Optimizer
    group: Group | None  # of several processes

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise NoSuchCallError(f"engine.{name}(): {ABSENT[name]}")
        return super().__getattr__(name)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.core.device

    @property
    def local_rank(self) -> int:
        """Among the processes of this machine that train the model."""
        return 0 if self.group is None else self.group.local_rank

    @property
    def global_rank(self) -> int:
        """Among all of them."""
        return 0 if self.group is None else self.group.rank

    @property
    def world_size(self) -> int:
        """How many there are."""
        return 1 if self.group is None else self.group.ranks

    def train_batch_size(self) -> int | None:
        """Rows of a step, of all processes, where the configuration says so."""
        micro = self.settings.micro_batch
        return None if micro is None else micro * self.settings.accumulation * self.world_size

    def gradient_clipping(self) -> float:
        """The largest global norm; 0: none."""
        return self.optimizer.clip

    def was_step_applied(self) -> bool:
        """Whether the last step updated: in fp16 one that overflows does not."""
        return self.optimizer.report is not None and self.optimizer.report.updated

    def allreduce_gradients(self, *_: Any, **__: Any) -> None:
        """Nothing: one process has all there are, and of several they are added up by backward and step."""

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Nothing, of several processes, too. With sum_order "passes_first" no pass but the step adds gradients over the
        processes, so it is as if each were in one. With "ranks_first" each pass does, and goes on doing so."""
        yield
