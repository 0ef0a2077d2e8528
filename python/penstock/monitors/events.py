"""What a step tells to monitors: DeepSpeed's events by its names, and ours.

An event's place on the axis is a number of samples, the rows that were trained with. `train_loss` stands at the
samples before its step and all others at those behind it, as DeepSpeed had it until 0.17; later ones have no loss but
in pipelines. Ours have a prefix of their own, beside "Train/": a dashboard's panels of that stay as they are."""
from __future__ import annotations

from ..run.step_record import StepRecord

Event = tuple[str, float, int]  # name, value, samples

DEEPSPEEDS = "Train/Samples/"
OURS = "Penstock/Samples/"


def events_of(record: StepRecord, next_rate: float) -> list[Event]:
    """`next_rate`: behind the scheduler's turn, which is the one that DeepSpeed tells."""
    at = record.samples
    told: list[Event] = []
    if record.loss is not None:
        told.append((f"{DEEPSPEEDS}train_loss", record.loss, at - record.batch))
    told.append((f"{DEEPSPEEDS}lr", next_rate, at))
    if record.loss_scale is not None:
        told.append((f"{DEEPSPEEDS}loss_scale", record.loss_scale, at))
    own = {"wait_seconds": record.wait_seconds, "read_bytes": record.read_bytes, "write_bytes": record.write_bytes,
           "host_bytes": record.memory.host, "nvme_bytes": record.memory.nvme, "device_bytes": record.memory.device,
           "torch_device_bytes": record.memory.torch}
    own |= {f"wait_time_ms_{name}": 1000 * part.wait_seconds for name, part in record.parts.items()}
    return [*told, *_elapsed(record), *((f"{OURS}{name}", value, at) for name, value in own.items())]


def _elapsed(record: StepRecord) -> list[Event]:
    """Milliseconds. In one process nothing of backward reduces gradients."""
    if not record.parts:
        return []
    forward, backward, step = (1000 * record.parts[name].seconds for name in ("forward", "backward", "step"))
    times = {"forward": forward, "backward": backward, "backward_inner": backward, "backward_allreduce": 0.0,
             "step": step}
    return [(f"{DEEPSPEEDS}elapsed_time_ms_{name}", time, record.samples) for name, time in times.items()]
