"""A copy out of the store: what would change it in place is an error, because the store would not see it."""
from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import OptimizerError

# Names of operations that write into what they are called on.
IN_PLACE = re.compile(r"(?!__)\w+_|__setitem__|"
                      r"__i(add|sub|mul|div|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift)__")


class ReadOnly(torch.Tensor):
    """So are views of it; what else is computed of it is an ordinary tensor."""

    penstock_text: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        for each in pytree.tree_leaves((kwargs.get("out"), args[:1] if IN_PLACE.fullmatch(name) else None)):
            if isinstance(each, ReadOnly):
                raise OptimizerError(f"'{name}' would change a copy out of the store: {each.penstock_text}")
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **kwargs)
        if type(out) is torch.Tensor and out._base is not None:
            for each in pytree.tree_leaves((args, kwargs)):
                if isinstance(each, ReadOnly) and out._base is (each if each._base is None else each._base):
                    return read_only(out, each.penstock_text)
        return out


def read_only(values: torch.Tensor, text: str) -> torch.Tensor:
    """`text`: what to do instead."""
    made: Any = values.as_subclass(ReadOnly)
    made.penstock_text = text
    return made  # type: ignore[no-any-return]
