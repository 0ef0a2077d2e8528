"""Modules that DeepSpeed gathers as a whole. A unit is, whatever it has within, so a mark is all that they need; a
marked module is a unit where units lie deeper (start.py)."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from ..errors import UsageError

MARK = "_z3_leaf"  # DeepSpeed's name, which programs read


def z3_leaf_module(module: nn.Module) -> bool:
    return bool(getattr(module, MARK, False))


def z3_leaf_parameter(parameter: Any) -> bool:
    """No parameter says of which module it is."""
    return False


def get_z3_leaf_modules(model: nn.Module) -> list[nn.Module]:
    return [each for each in model.modules() if z3_leaf_module(each)]


def set_z3_leaf_module(model: nn.Module, flag: bool = True) -> None:
    setattr(model, MARK, flag)


def set_z3_leaf_modules(model: nn.Module, leaf_module_classes: Iterable[type | str], raise_if_not_found: bool = True
                        ) -> list[nn.Module]:
    """Marks all modules of these classes, or of classes of these names; gives them."""
    return _mark(model, list(leaf_module_classes), True, raise_if_not_found)


def unset_z3_leaf_modules(model: nn.Module, leaf_module_classes: Iterable[type | str], raise_if_not_found: bool = True
                          ) -> list[nn.Module]:
    """Takes the marks away."""
    return _mark(model, list(leaf_module_classes), False, raise_if_not_found)


def _mark(model: nn.Module, classes: list[type | str], flag: bool, must: bool) -> list[nn.Module]:
    names = {each for each in classes if isinstance(each, str)}
    kinds = tuple(each for each in classes if isinstance(each, type))
    found = [each for each in model.modules() if isinstance(each, kinds) or names & _names_of(type(each))]
    if must and not found:
        raise UsageError(f"set_z3_leaf_modules(): the model has no module of {classes}")
    for each in found:
        set_z3_leaf_module(each, flag)
    return found


def _names_of(kind: type) -> set[str]:
    return {kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"}
