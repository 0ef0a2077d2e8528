"""Where a store may update units within backward, and where not."""
from __future__ import annotations

from ..errors import UsageError
from ..settings import Settings
from ..store import Store

WITHIN = ("in_backward", "speculative", "balanced")


def check(store: Store, settings: Settings) -> None:
    """Raises UsageError where an order that was asked for would never be taken."""
    order = store.update_order
    if order not in WITHIN:
        return
    if settings.loss_scale is not None:
        raise UsageError(f"Store(update_order='{order}'), run.update_order of a configuration, with fp16: a step whose "
                         "gradient overflows is skipped, which is known after backward; say 'deferred' there, or take "
                         "bfloat16")
    if settings.clip == 0:
        return
    if order == "in_backward":
        raise UsageError("Store(update_order='in_backward'), run.update_order of a configuration, updates units before "
                         f"the norm of the gradient is known: gradient_clipping {settings.clip:g} needs 'speculative', "
                         "'deferred' or 'after_backward' there, or be 0")
    if not store.keep or store.commit_steps != 1 or store.weights != "nvme" or store.states != "nvme" or store.fill_host_budget:
        raise UsageError(f"Store(update_order='{order}'), run.update_order of a configuration, updates again, from "
                         "what is committed and on NVMe, where a gradient is clipped after all: it needs "
                         "commit_steps 1, keep=True, weights and states on 'nvme', and no fill_host_budget")


def in_vain(order: str, has_buffers: bool) -> str | None:
    """What to say of an order that a model does not get."""
    if taken(order, has_buffers) == order:
        return None
    return (f"Store(update_order='{order}') is '{taken(order, has_buffers)}' for this model: its buffers are "
            "written before the step that they belong to")


def taken(order: str, has_buffers: bool) -> str:
    """What becomes of it."""
    if order not in WITHIN or not has_buffers:
        return order
    return "after_backward" if order == "in_backward" else "deferred"
