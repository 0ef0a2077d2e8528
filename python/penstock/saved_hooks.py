"""Which hooks for saved tensors are innermost now. Before 2.6 torch does not tell: there entering them is watched."""
from __future__ import annotations

import threading
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

_told_by_torch: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class _Watched(threading.local):
    def __init__(self) -> None:
        self.inside: list[tuple[Any, Any]] = []


_watched = _Watched()


def innermost() -> Any:
    """The function that packs, or None."""
    hooks = innermost_pair()
    return None if hooks is None else hooks[0]


def innermost_pair() -> tuple[Any, Any] | None:
    """The functions that pack and unpack."""
    if _told_by_torch is not None:
        return _told_by_torch(True)  # type: ignore[no-any-return]
    return _watched.inside[-1] if _watched.inside else None


def _watch() -> None:
    enter, leave = saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__

    def entered(self: Any) -> None:
        enter(self)
        _watched.inside.append((self.pack_hook, self.unpack_hook))

    def left(self: Any, *args: object) -> None:
        _watched.inside.pop()
        leave(self, *args)
    saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__ = entered, left  # type: ignore[method-assign]


if _told_by_torch is None:
    _watch()
