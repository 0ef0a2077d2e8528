"""An engine of a model that is not trained: neither the caller nor the configuration has an optimizer."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import comm
from ..errors import UsageError
from ..settings import Settings
from .engine import DeepSpeedEngine
from .placement import device_of
from .telling import LOGGER
from .zero import tell_of_ordinary


class IdleEngine(DeepSpeedEngine):
    """The model stays as it is, in memory, in the configuration's type. Programs ask isinstance() of it and call it."""

    optimizer = lr_scheduler = None  # type: ignore[assignment]
    group = None
    global_steps = skipped_steps = 0
    loss_scale = 1.0

    def __init__(self, model: nn.Module, config: dict[str, Any], settings: Settings, training_data: Any = None,
                 collate_fn: Callable[..., Any] | None = None) -> None:
        nn.Module.__init__(self)
        self.module = model if settings.dtype is None else model.to(settings.dtype)
        self.config, self.settings = config, settings
        self._take_first()
        if training_data is not None:
            self.training_dataloader = self.deepspeed_io(training_data, collate_fn=collate_fn)
        if self.zero_optimization_partition_weights():
            tell_of_ordinary(model)
        if "nvme" in (device_of(self._zero, "offload_param"), device_of(self._zero, "offload_optimizer")):
            LOGGER.warning("this engine has no optimizer, and its model stays in memory whatever offload_param says; a "
                           "model that is larger is opened by penstock.initialize(), frozen")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*self.cast(args), **self.cast(kwargs))

    @property
    def world_size(self) -> int:
        return comm.get_world_size()

    @property
    def global_rank(self) -> int:
        return comm.get_rank()

    @property
    def local_rank(self) -> int:
        return comm.get_local_rank()

    def _take_first(self) -> None:
        """Of several processes all have rank 0's weights, as where they train them."""
        if self.world_size > 1:
            for each in (*self.module.parameters(), *self.module.buffers()):
                comm.broadcast(each.detach(), 0)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def gradient_clipping(self) -> float:
        return self.settings.clip

    def get_lr(self) -> list[float]:
        return []

    get_mom = get_type = get_lr

    def get_global_grad_norm(self) -> None:
        return None

    def was_step_applied(self) -> bool:
        return False

    def is_gradient_accumulation_boundary(self) -> bool:
        return True

    def set_gradient_accumulation_boundary(self, is_boundary: bool | None) -> None:
        """There are no steps."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise UsageError("this engine of deepspeed.initialize() has no optimizer: give it one, optimizer=..., or name "
                         "it in the configuration, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-5}}")

    backward = step = save_checkpoint = load_checkpoint = train_batch = _refuse

    def destroy(self) -> None:
        """Nothing of it is on the model."""

    close = release = destroy  # type: ignore[assignment]
