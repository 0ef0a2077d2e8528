"""Torch's attention and encoders have a faster way for evaluations, with other values where rows are padded. They leave it
where a weight's class overrides functions of torch's; a managed parameter does, and changes nothing by it."""
from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import activation, transformer

from .parameter import Watched

ASKING = (activation.__name__, transformer.__name__)
_has_torch_function = torch.overrides.has_torch_function


def install() -> None:
    """For all models; once."""
    torch.overrides.has_torch_function = _has_own_function


def _has_own_function(args: Iterable[Any]) -> bool:
    if sys._getframe(1).f_globals.get("__name__") in ASKING:
        args = tuple(each for each in args if not isinstance(each, Watched))
    return _has_torch_function(args)
