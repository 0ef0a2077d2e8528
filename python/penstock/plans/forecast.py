"""How long a step will take: asked of the engine's core, which replays what a session decides."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from ..core import ModelSpec
from ..errors import FitError, UsageError
from ..native import update_order
from ..native.described import Compute, Described
from ..native.structs import BOTTLENECKS
from ..settings import Settings
from ..store import Store, UpdateOrder

WORTH_TELLING, TOLD = 1.03, 4  # times faster; ways
ORDER = {"update_order", "deferred_share"}  # what of Store chooses when units are updated


@dataclass(frozen=True)
class Rates:
    """What this machine gave within the last seconds. Bytes, elements and seconds."""

    read_bytes_per_s: float
    write_bytes_per_s: float
    both_bytes_per_s: float
    flush_s: float  # until what was written is durable, and a manifest behind it
    hash_bytes_per_s: float
    driver_s_per_byte: float  # of the thread that moves bytes, with hashes
    update_elements_per_s: float
    threads: int
    cores: int
    places: tuple[str, ...]  # where it was measured
    notes: tuple[str, ...]
    text: str = field(repr=False)
    contended_compute: float = 1.0  # what compute keeps of its speed while the drives move bytes
    contended_device: float = 1.0  # and they of theirs


@dataclass(frozen=True)
class Step:
    """A step among its like, a mean over the steps of one commit. The first four parts are its seconds, but for what is
    outside of passes."""

    seconds: float
    forward_s: float
    backward_s: float
    update_s: float  # with waiting for states
    commit_s: float
    wait_weights_s: float  # within these
    wait_tiles_s: float
    wait_spills_s: float  # for gradients and activations that went to NVMe
    # What each lane is busy for.
    compute_s: float
    updating_s: float
    nvme_read_s: float
    nvme_write_s: float
    driver_s: float
    # What the bytes take at least; compute, updates and, without a core of its own, the thread that moves bytes.
    nvme_s: float
    processor_s: float
    bottleneck: str  # "nvme", "processor", "both", or "order": of updates, which makes one wait for the other
    nvme_read_bytes: float
    nvme_write_bytes: float
    compute_that_hides_nvme: float  # so many times this batch
    tokens_that_hide_nvme: float | None  # per step
    written_bytes_per_day: float
    days_to_endurance: float | None
    text: str = field(repr=False)


@dataclass(frozen=True)
class Way:
    """To run it otherwise, to the same bits: what Store and Settings are to be told."""

    store: Mapping[str, Any]
    step: Step
    hopes: bool = False  # that no step is clipped
    settings: Mapping[str, Any] = field(default_factory=dict)
    graph_bytes: int = 0  # that are kept from forward to backward then, beside the pool

    def __str__(self) -> str:
        told = [f"{name}({', '.join(f'{key}={value!r}' for key, value in said.items())})"
                for name, said in (("Store", self.store), ("Settings", self.settings)) if said]
        graphs = f", which takes {self.graph_bytes / 2**20:,.0f} MiB beside the pool" if self.graph_bytes else ""
        return " and ".join(told) + graphs + (", where no step is clipped" if self.hopes else "")


@dataclass(frozen=True)
class Forecast:
    """`nvme_s` and `update_s` are what a step's bytes and updates take by themselves, known without a batch."""

    rates: Rates
    nvme_s: float
    update_s: float
    step: Step | None = None
    orders: Mapping[str, Step] = field(default_factory=dict)  # with the settings as they are else
    others: tuple[Way, ...] = ()  # that fit this machine, the fastest first


def forecast_of(spec: ModelSpec, store: Store, settings: Settings, seconds: float, compute: Compute | None,
                keeping: Compute | None = None) -> Forecast:
    """Measures the store's devices for `seconds` at a time. `keeping`: compute where graphs are kept, if that is another
    way. Raises FitError and StorageError, as they do."""
    described = Described(spec, store)
    measured = described.measure(seconds)
    known = described.forecast(measured)
    bare = Forecast(_rates(measured), known.nvme_seconds, known.update_seconds)
    if compute is None:
        return bare
    ways: list[Way] = []
    kept: list[Way] = []
    for changes in _ways(spec, store, settings):
        other = replace(store, **changes)
        step = _step(Described(spec, other).forecast(measured, compute), compute)
        hopes = settings.clip > 0 and other.update_order == "within"
        ways.append(Way(changes, step, hopes))
        if keeping is not None and changes.keys() <= ORDER:
            step = _step(Described(spec, other).forecast(measured, keeping), keeping)
            kept.append(Way(changes, step, hopes, {"activations": "keep"}, keeping.graph_bytes))
    orders: dict[str, Step] = {}
    for way in ways:
        if way.store.keys() <= ORDER:
            orders.setdefault(way.store.get("update_order", store.update_order), way.step)
    own = orders[update_order.taken(store, spec)]
    others = sorted((*(way for way in ways if way.store and way.step is not own), *kept),
                    key=lambda way: way.step.seconds)
    return replace(bare, step=own, orders=orders, others=tuple(others))


def text_of_others(forecast: Forecast) -> str:
    assert forecast.step is not None
    now = forecast.step.seconds
    faster = [way for way in forecast.others if now / way.step.seconds >= WORTH_TELLING][:TOLD]
    if not faster:
        return line("faster", "no other order of updates or place of weights and states that fits here")
    return "".join(line("" if at else "faster", f"{way.step.seconds:.3f} s ({now / way.step.seconds:.2f}x) with {way}")
                   for at, way in enumerate(faster))


def line(name: str, text: str) -> str:
    """As the core's own."""
    return f"{name:<12} {text}\n"


def _ways(spec: ModelSpec, store: Store, settings: Settings) -> Iterator[dict[str, Any]]:
    """What Store may be told that changes no bit and fits: nothing, other orders of updates, and other places."""
    for place in _places(spec, store):
        for changes in _orders(store):
            other = replace(store, **place, **changes)
            if update_order.in_vain(other, spec):
                continue
            try:
                update_order.check(other, settings)
                Described(spec, other).plan()
            except (FitError, UsageError):
                continue
            yield {**place, **changes}


def _orders(store: Store) -> Iterator[dict[str, Any]]:
    """The store's own first of those of one name."""
    share = store.deferred_share or "auto"
    ways: list[tuple[str, float | str]] = [(order, 0.0) for order in get_args(UpdateOrder)] + [("within", share)]
    if store.deferred_share:
        ways[-2:] = reversed(ways[-2:])
    for order, deferred in ways:
        own = {"update_order": store.update_order, "deferred_share": store.deferred_share}
        yield {name: said for name, said in {"update_order": order, "deferred_share": deferred}.items()
               if said != own[name]}


def _places(spec: ModelSpec, store: Store) -> Iterator[dict[str, Any]]:
    yield {}
    if store.host_budget_bytes and not store.fill_host_budget:
        yield {"fill_host_budget": True}
    nvme = [each for each in ("weights", "states") if getattr(store, each) == "nvme"]
    for kept in (nvme[:1], nvme) if len(nvme) == 2 else (nvme,):
        if not kept:
            continue
        changes: dict[str, Any] = dict.fromkeys(kept, "cpu")
        if store.host_budget_bytes:
            try:
                needed = Described(spec, replace(store, **changes, host_budget_bytes=0)).plan().pool_bytes
            except FitError:
                continue
            if needed > store.host_budget_bytes:
                changes["host_budget_bytes"] = needed
        yield changes


def _rates(told: Any) -> Rates:
    return Rates(told.read, told.write, told.both, told.flush_seconds, 1 / told.hash_per_byte,
                 told.submit_per_byte + told.hash_per_byte, 1 / told.update_per_element, told.threads, told.cores,
                 tuple(told.places.decode(errors="replace").splitlines()),
                 tuple(told.notes.decode(errors="replace").splitlines()), told.text.decode(errors="replace"),
                 told.contended_compute, told.contended_device)


def _step(told: Any, compute: Compute) -> Step:
    return Step(
        told.seconds, told.forward_seconds, told.backward_seconds, told.after_seconds, told.commit_seconds,
        told.wait_weights_seconds, told.wait_states_seconds, told.wait_spills_seconds, told.compute_seconds,
        told.update_seconds, told.reading_seconds, told.writing_seconds, told.driver_seconds, told.nvme_seconds,
        told.processor_seconds, BOTTLENECKS[told.bottleneck], told.read_bytes, told.write_bytes,
        told.hiding_compute, told.tokens_that_hide_nvme if compute.tokens else None, told.written_bytes_per_day,
        told.days_to_endurance or None, told.text.decode(errors="replace"))
