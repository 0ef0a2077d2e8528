"""DeepSpeed's optimizers and the questions whether they can be built. Their arithmetic is the store's."""
from __future__ import annotations

from typing import Any

import torch

from ..errors import OptimizerError, UsageError


class _Adam(torch.optim.AdamW):
    """`penstock_kind` says which one it is (optimizers/kind.py)."""

    def __init__(self, parameters: Any, lr: float, bias_correction: bool, betas: tuple[float, float], eps: float,
                 weight_decay: float, amsgrad: bool, decoupled: bool) -> None:
        name = type(self).__name__
        if not bias_correction:
            raise OptimizerError(f"{name}(bias_correction=False): Penstock corrects the moments always; leave it out")
        if amsgrad:
            raise OptimizerError(f"{name}(amsgrad=True): there is no such update here; leave it out")
        super().__init__(parameters, lr, betas, eps, weight_decay)
        self.adam_w_mode, self.penstock_kind = decoupled, "adamw" if decoupled else "adam"
        for group in self.param_groups:
            group["decoupled_weight_decay"] = decoupled


class DeepSpeedCPUAdam(_Adam):
    """AdamW, or with adamw_mode=False Adam."""

    def __init__(self, model_params: Any, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, adamw_mode: bool = True, fp32_optimizer_states: bool = True) -> None:
        super().__init__(model_params, lr, bias_correction, betas, eps, weight_decay, amsgrad, adamw_mode)


class FusedAdam(_Adam):
    """AdamW, or with adam_w_mode=False Adam."""

    def __init__(self, params: Any, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, adam_w_mode: bool = True,
                 weight_decay: float = 0.0, amsgrad: bool = False, set_grad_none: bool = True) -> None:
        super().__init__(params, lr, bias_correction, betas, eps, weight_decay, amsgrad, adam_w_mode)


class DeepSpeedCPUAdagrad(torch.optim.Adagrad):
    """Adagrad."""

    penstock_kind = "adagrad"

    def __init__(self, model_params: Any, lr: float = 1e-2, eps: float = 1e-10, weight_decay: float = 0,
                 amsgrad: bool = False, fp32_optimizer_states: bool = True) -> None:
        super().__init__(model_params, lr=lr, eps=eps, weight_decay=weight_decay)


class DeepSpeedCPULion(torch.optim.Optimizer):
    """Lion. It steps in an engine alone."""

    penstock_kind = "lion"

    def __init__(self, model_params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 weight_decay: float = 0, fp32_optimizer_states: bool = True) -> None:
        super().__init__(model_params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> Any:
        """Refused."""
        raise OptimizerError(f"{type(self).__name__}.step(): its arithmetic is the store's; give the optimizer to "
                             "deepspeed.initialize(), and step the engine")


class FusedLion(DeepSpeedCPULion):
    """Lion."""


class Builder:
    """Programs ask whether something can be built; it need not be."""

    def is_compatible(self, verbose: bool = False) -> bool:
        return True

    def load(self, verbose: bool = True) -> Any:
        raise UsageError(f"{type(self).__name__}.load(): what DeepSpeed builds here is not Penstock's; files are read "
                         "and written by its C library (swap/capi/penstock.h), and optimizers by deepspeed.ops")


class AsyncIOBuilder(Builder):
    NAME = "async_io"


class CPUAdamBuilder(Builder):
    NAME = "cpu_adam"


class FusedAdamBuilder(Builder):
    NAME = "fused_adam"


COMPATIBLE_OPS = dict.fromkeys(("async_io", "cpu_adam", "cpu_adagrad", "cpu_lion", "fused_adam", "fused_lion"), True)
