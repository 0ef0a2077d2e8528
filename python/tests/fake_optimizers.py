"""One step of one parameter by torch's own functions (foreach=False), so that its bits are torch.optim's."""
from __future__ import annotations

import torch
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from penstock.core import GroupValues, OptimizerKind


def update_parameter(kind: OptimizerKind, master: torch.Tensor, gradient: torch.Tensor,
                     moments: tuple[torch.Tensor, torch.Tensor], step: torch.Tensor, values: GroupValues) -> None:
    if kind in ("adamw", "adam"):
        function = adamw if kind == "adamw" else adam
        function([master], [gradient], [moments[0]], [moments[1]], [], [step], foreach=False, amsgrad=False,
                 beta1=values.betas[0], beta2=values.betas[1], lr=values.lr, weight_decay=values.weight_decay,
                 eps=values.eps, maximize=False)
    elif kind == "sgd":
        first = int(step) == 0
        buffers = [None if first or values.momentum == 0 else moments[0]]
        sgd([master], [gradient], buffers, foreach=False, weight_decay=values.weight_decay, momentum=values.momentum,
            lr=values.lr, dampening=values.dampening, nesterov=values.nesterov, maximize=False)
        if buffers[0] is not None:
            moments[0].copy_(buffers[0])
        step += 1
    elif kind == "adagrad":
        adagrad([master], [gradient], [moments[0]], [step], foreach=False, lr=values.lr,
                weight_decay=values.weight_decay, lr_decay=values.lr_decay, eps=values.eps, maximize=False)
    else:
        master.mul_(1 - values.lr * values.weight_decay)
        beta1, beta2 = values.betas
        direction = moments[0] * beta1 + gradient * (1 - beta1)
        master.add_(torch.sign(direction), alpha=-values.lr)
        moments[0].mul_(beta2).add_(gradient, alpha=1 - beta2)
        step += 1
