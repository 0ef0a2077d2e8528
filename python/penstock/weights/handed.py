"""Memory that a program has of weights, by which it would see them change in torch."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .lent import forbid

# What it is, and what to do instead; {} is the parameter's name.
VIEW = ("a view of parameter '{}' is read that was taken before an update (.data, detach(), a part of it): in torch it would "
        "follow the weight. Keep a copy, .detach().clone(), or take the view anew")
STATE = ("what state_dict() gave of parameter '{}' before an update is read: in torch it would follow the weight. Keep a copy, "
         "copy.deepcopy(model.state_dict()), or ask for the state_dict() anew")
ASSIGNED = ("a tensor is read that was assigned to '{}'.data before an update: in torch it is the weight's memory, and would "
            "follow it. Assign a copy, .clone(), or read the parameter")


class Handed:
    """Told weakly: what nobody has any more is forgotten. Once its weight was updated, an access to it is an error, so far as
    torch can forbid memory."""

    def __init__(self, name_of: Callable[[nn.Parameter], str]) -> None:
        self._name_of = name_of
        self._listed: list[tuple[nn.Parameter, StorageWeakRef, str]] = []
        self._enough = 64  # at which those that are gone are dropped

    def add(self, parameter: nn.Parameter, tensor: torch.Tensor, what: str) -> None:
        if tensor.layout is not torch.strided:
            return
        self._listed.append((parameter, StorageWeakRef(tensor.untyped_storage()), what))
        if len(self._listed) >= self._enough:
            self._listed = [each for each in self._listed if not each[1].expired()]
            self._enough = max(64, 2 * len(self._listed))

    def forget(self, parameter: nn.Parameter) -> None:
        """It has other memory now."""
        self._listed = [each for each in self._listed if each[0] is not parameter]

    def forbid(self, was_updated: Callable[[nn.Parameter], bool]) -> None:
        listed, self._listed = self._listed, []
        for parameter, storage, what in listed:
            if storage.expired():
                continue
            if was_updated(parameter):
                forbid(torch.UntypedStorage._new_with_weak_ptr(storage.cdata), what.format(self._name_of(parameter)))
            else:
                self._listed.append((parameter, storage, what))
