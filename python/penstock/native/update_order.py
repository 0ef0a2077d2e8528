"""Where a store may update units within backward, and where not."""
from __future__ import annotations

import ctypes
import os
from typing import Any

from ..core import ModelSpec
from ..errors import UsageError
from ..settings import Settings
from ..store import Store
from . import structs as c
from .session import array, functions, made


def options_of(store: Store, clips: bool) -> dict[str, Any]:
    """What decides it, as penstock_session_options has it."""
    return {"update_order": c.UPDATE_ORDERS[store.update_order], "clips": clips,
            "deferred_share": -1.0 if store.deferred_share == "auto" else store.deferred_share}


def check(store: Store, settings: Settings) -> None:
    """Raises UsageError where an order that was asked for would never be taken."""
    if store.update_order == "within" and settings.loss_scale is not None:
        raise UsageError("Store(update_order='within'), run.update_order of a configuration, with fp16: a step whose "
                         "gradient overflows is skipped, which is known after backward; say 'deferred' there, or take "
                         "bfloat16")
    paths = store.paths()
    options = made(c.Options, directories=array(ctypes.c_char_p, list(map(os.fsencode, paths))),
                   directory_count=len(paths), job=store.job.encode(), weights=c.TIERS[store.weights],
                   states=c.TIERS[store.states], commit_steps=store.commit_steps, scratch=not store.keep,
                   fill_host_budget=store.fill_host_budget, **options_of(store, settings.clip > 0))
    try:
        functions()["check"](ctypes.byref(options))
    except UsageError as error:
        raise UsageError(f"Store(update_order='{store.update_order}'), run.update_order of a configuration: "
                         f"{error}") from None


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
