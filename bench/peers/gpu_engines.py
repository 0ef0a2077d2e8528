"""The engines that gpu.py sets beside each other: one model, one optimizer, other places for its states.

An engine has `count` parameters; micro() is forward and backward of a micro-batch and gives its loss, step() an update. What it
writes lies in scratch_of(), which gpu.py removes.
"""
from __future__ import annotations

import os
import shutil
from types import SimpleNamespace
from typing import Any

from fine_tune import configuration, place_of

GIB = 2**30


class NotHere(Exception):
    """What a run needs is lacking."""


def on_gpu(options: SimpleNamespace) -> bool:
    return options.device.startswith("cuda")


def scratch_of(options: SimpleNamespace, process: int) -> str:
    return os.path.join(options.dir, f"run-{process}")


def wait_for_gpu(options: SimpleNamespace) -> None:
    import torch

    if on_gpu(options):
        torch.cuda.synchronize()


# ---------------------------------------------------------------- the model

def model_of(options: SimpleNamespace, place: str | None = None) -> Any:
    """Drawn where torch computes, so that all engines of a machine begin alike; then moved to `place`."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    with torch.device(place_of(options)):
        model = AutoModelForCausalLM.from_config(configuration(options.shape, options.tokens), dtype=torch.bfloat16)
    model = model.to(place or place_of(options)).train()
    if on_gpu(options):
        torch.cuda.empty_cache()
    return model


def recomputed(model: Any) -> Any:
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


# ---------------------------------------------------------------- engines

class Compute:
    def __init__(self, options: SimpleNamespace) -> None:
        self.options = options
        self.model = recomputed(model_of(options))
        self.count = sum(each.numel() for each in self.model.parameters())

    def loss(self, tokens: Any) -> Any:
        return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss

    def micro(self, tokens: Any, last: bool) -> Any:
        loss = self.loss(tokens)
        (loss / self.options.micro_batches).backward()
        return loss.detach()

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)

    def figures(self) -> dict[str, Any]:
        return {}


class Torch(Compute):
    def __init__(self, options: SimpleNamespace) -> None:
        import torch

        super().__init__(options)
        self.weights = list(self.model.parameters())
        self.masters = [each.detach().float().requires_grad_() for each in self.weights]
        self.optimizer = torch.optim.AdamW(self.masters, lr=options.rate, weight_decay=0.0, fused=True)

    def step(self) -> None:
        import torch

        for master, weight in zip(self.masters, self.weights):
            master.grad, weight.grad = weight.grad.float(), None
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.masters, self.options.clip, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)


class OfItsOwn(Compute):
    """The model is an engine, which divides the loss and updates with a step's last micro-batch."""

    def micro(self, tokens: Any, last: bool) -> Any:
        loss = self.loss(tokens)
        self.model.backward(loss)
        self.model.step()
        return loss.detach()

    def step(self) -> None:
        pass


class Penstock(OfItsOwn):
    def __init__(self, options: SimpleNamespace) -> None:
        import dataclasses

        import penstock
        import torch

        self.options = options
        model = model_of(options, "cpu")
        self.count = sum(each.numel() for each in model.parameters())
        own_memory = {} if options.device == "cpu" else {
            "device": options.device, "device_budget_bytes": int(4.1 * self.count) + GIB // 4}  # weights and gradients
        said = {"update_order": options.order, "snapshots": False, **own_memory}
        if options.tier == "cpu" and not options.commit_steps:
            store = dataclasses.replace(penstock.Store.in_memory(), **said)
        else:
            store = penstock.Store(scratch_of(options, os.getpid()), weights=options.tier,
                                   states=options.tier, commit_steps=options.commit_steps or 1, **said)
            self.check_room()
        settings = penstock.Settings(clip=options.clip, accumulation=options.micro_batches, activations=options.activations)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.0)
        self.model, _, _, _ = penstock.initialize(model, optimizer, store=store, settings=settings)

    def check_room(self) -> None:
        needed, free = 24 * self.count + GIB, shutil.disk_usage(self.options.dir).free
        if needed > free:
            raise NotHere(f"two slots of the store take {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")

    def figures(self) -> dict[str, Any]:
        info = self.model.core.info()
        return {"pool_gib": round(info.pool_bytes / GIB, 2), "read_bytes": info.read_bytes, "write_bytes": info.write_bytes}


class FsdpOffload(Compute):
    def __init__(self, options: SimpleNamespace) -> None:
        import torch
        import torch.distributed as ranks
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        self.options = options
        kind = "cuda" if on_gpu(options) else "cpu"
        meeting = os.path.join(scratch_of(options, os.getpid()), "meeting")
        os.makedirs(os.path.dirname(meeting))
        ranks.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", init_method=f"file://{meeting}", rank=0,
                                 world_size=1)
        self.model = recomputed(model_of(options, "cpu").float())
        self.count = sum(each.numel() for each in self.model.parameters())
        policy = {"mesh": init_device_mesh(kind, (1,)), "reshard_after_forward": False,
                  "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
                  "offload_policy": CPUOffloadPolicy(pin_memory=True) if kind == "cuda" else OffloadPolicy()}
        for layer in self.model.model.layers:
            fully_shard(layer, **policy)
        fully_shard(self.model, **policy)
        # On one rank a local tensor is the whole parameter: its own optimizer does without DTensor's dispatch.
        self.sharded = list(self.model.parameters())
        self.local: list[Any] = []

    def micro(self, tokens: Any, last: bool) -> Any:
        self.model.set_requires_gradient_sync(last)
        self.model.set_reshard_after_backward(last)
        return super().micro(tokens, last)

    def step(self) -> None:
        import torch

        if not self.local:
            self.local = [torch.nn.Parameter(each.to_local().detach()) for each in self.sharded]
            self.optimizer = torch.optim.AdamW(self.local, lr=self.options.rate, weight_decay=0.0, fused=True)
        for local, sharded in zip(self.local, self.sharded):
            local.grad, sharded.grad = sharded.grad.to_local(), None
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.local, self.options.clip, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class DeepSpeed(OfItsOwn):
    def __init__(self, options: SimpleNamespace) -> None:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(29500 + os.getpid() % 1000))
        if not on_gpu(options):
            os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        self.options = options
        model = recomputed(model_of(options, "cpu" if options.tier == "nvme" else None))
        self.count = sum(each.numel() for each in model.parameters())
        pinned = on_gpu(options)
        zero: dict[str, Any] = {"stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "cpu", "pin_memory": pinned}}
        if options.tier == "nvme":
            drive = {"device": "nvme", "nvme_path": scratch_of(options, os.getpid()), "pin_memory": pinned}
            os.makedirs(drive["nvme_path"])
            largest = max(each.numel() for each in model.parameters())
            zero = {"stage": 3, "sub_group_size": 100_000_000,
                    # Weights of smaller models stay in host memory unless it is told 0.
                    "offload_param": {**drive, "buffer_count": 22, "buffer_size": largest, "max_in_cpu": 0},
                    "offload_optimizer": {**drive, "buffer_count": 12, "pipeline_read": True, "pipeline_write": True}}
        self.model, _, _, _ = deepspeed.initialize(
            model=model, optimizer=DeepSpeedCPUAdam(model.parameters(), lr=options.rate, weight_decay=0.0),
            config={"train_micro_batch_size_per_gpu": options.rows, "gradient_accumulation_steps": options.micro_batches,
                    "gradient_clipping": options.clip, "bf16": {"enabled": True}, "zero_optimization": zero,
                    "aio": {"block_size": 1 << 20, "queue_depth": 16, "overlap_events": True}, "steps_per_print": 10**9})


ENGINES = {"compute": Compute, "torch": Torch, "penstock": Penstock, "fsdp_offload": FsdpOffload, "deepspeed": DeepSpeed}
