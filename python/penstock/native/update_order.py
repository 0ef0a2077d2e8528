"""Where a store may update units within backward, and where not."""
from __future__ import annotations

import ctypes
import os

from ..core import ModelSpec
from ..errors import UsageError
from ..settings import Settings
from ..store import Store, settings_of
from . import structs as c
from .session import array, functions, made


def check(store: Store, settings: Settings) -> None:
    """Raises UsageError where an order that was asked for would never be taken."""
    if store.update_order == "within" and settings.loss_scale is not None:
        raise UsageError("Store(update_order='within'), run.update_order of a configuration, with fp16: a step whose "
                         "gradient overflows is skipped, which is known after backward; say 'deferred' there, or take "
                         "bfloat16")
    paths = store.paths()
    options = made(c.Options, directories=array(ctypes.c_char_p, list(map(os.fsencode, paths))),
                   directory_count=len(paths), job=store.job.encode(), scratch=not store.keep,
                   clips=settings.clip > 0, settings=settings_of(store).encode())
    functions()["check"](ctypes.byref(options))


def in_vain(store: Store, model: ModelSpec) -> str | None:
    """What to say of an order that a model does not get."""
    own = taken(store, model)
    if own == store.update_order:
        return None
    return (f"Store(update_order='{store.update_order}') is '{own}' for this model: its buffers are written before the "
            "step that they belong to")


def taken(store: Store, model: ModelSpec) -> str:
    """What becomes of it."""
    if store.update_order != "within" or model.extra is None:
        return store.update_order
    return "deferred" if model.clips or store.deferred_share else "after_backward"
