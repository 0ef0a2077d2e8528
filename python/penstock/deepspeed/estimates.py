"""estimate_zero3_model_states_mem_needs_all_live() and its kin: printed by DeepSpeed's rule, so that a number that was
read there is found here; and by Penstock's plan, which is what an engine takes."""
from __future__ import annotations

from typing import Any

from torch import nn

GIB = 2**30
Needs = tuple[float, float, str]  # bytes of a node's memory, of a GPU's, and what was chosen


def zero2(total_params: int, num_gpus_per_node: int = 1, num_nodes: int = 1, cpu_offload: bool = True,
          additional_buffer_factor: float = 1.5) -> tuple[float, float]:
    """Bytes of a node's memory and of a GPU's: 16 bits of weights and gradients, 12 bytes of fp32 states."""
    gpus = num_gpus_per_node * num_nodes
    if cpu_offload:
        return max(4 * total_params * gpus, 16 * total_params) * additional_buffer_factor, 2 * total_params
    return (4 * total_params * num_gpus_per_node * additional_buffer_factor,
            2 * total_params + int(18 * total_params / gpus))


def zero3(total_params: int, largest_layer_params: int, num_gpus_per_node: int = 1, num_nodes: int = 1,
          cpu_offload: bool = True, cpu_offload_params: bool = True, zero_init: bool = True,
          additional_buffer_factor: float = 1.5) -> tuple[float, float, int]:
    """The same, with weights in parts; and the bytes of the largest layer, which is gathered."""
    gpus, share = num_gpus_per_node * num_nodes, 1 / num_nodes
    largest = 4 * largest_layer_params
    made = 4 * total_params * num_gpus_per_node if not zero_init else 0
    if not cpu_offload:
        made = made if not zero_init else 4 * largest_layer_params * num_gpus_per_node
        return made * additional_buffer_factor, largest + int(18 * total_params / gpus), largest
    if cpu_offload_params:
        return max(made, 18 * total_params * share) * additional_buffer_factor, largest, largest
    return (max(made, 16 * total_params * share) * additional_buffer_factor, largest + int(2 * total_params / gpus),
            largest)


def zero2_all_live(model: nn.Module, num_gpus_per_node: int = 1, num_nodes: int = 1,
                   additional_buffer_factor: float = 1.5) -> None:
    """Prints what each choice takes, of a model that is there."""
    zero2_all_cold(_count(model), num_gpus_per_node, num_nodes, additional_buffer_factor)


def zero2_all_cold(total_params: int, num_gpus_per_node: int = 1, num_nodes: int = 1,
                   additional_buffer_factor: float = 1.5) -> None:
    """The same, of so many parameters."""
    rows = []
    for offload in (True, False):
        node, gpu = zero2(total_params, num_gpus_per_node, num_nodes, offload, additional_buffer_factor)
        rows.append((node, gpu, f"offload_optimizer={'cpu' if offload else 'none'}"))
    _print(f"{total_params / 1e6:.0f}M total params", num_gpus_per_node, num_nodes, rows)


def zero3_all_live(model: nn.Module, num_gpus_per_node: int = 1, num_nodes: int = 1,
                   additional_buffer_factor: float = 1.5) -> None:
    """Prints what each choice takes, of a model that is there."""
    zero3_all_cold(_count(model), _largest_layer(model), num_gpus_per_node, num_nodes, additional_buffer_factor)


def zero3_all_cold(total_params: int, largest_layer_params: int, num_gpus_per_node: int = 1, num_nodes: int = 1,
                   additional_buffer_factor: float = 1.5) -> None:
    """The same, of so many parameters."""
    rows = []
    for params, optimizer in ((True, True), (False, True), (False, False)):
        for made in (True, False):
            node, gpu, _ = zero3(total_params, largest_layer_params, num_gpus_per_node, num_nodes, optimizer, params,
                                 made, additional_buffer_factor)
            rows.append((node, gpu, f"offload_param={'cpu' if params else 'none'}, offload_optimizer="
                                    f"{'cpu' if optimizer else 'none'}, zero_init={int(made)}"))
    _print(f"{total_params / 1e6:.0f}M total params, {largest_layer_params / 1e6:.0f}M largest layer params",
           num_gpus_per_node, num_nodes, rows)


def _count(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def _largest_layer(model: nn.Module) -> int:
    own = (sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules())
    return max(own, default=0)


def _print(of: str, gpus: int, nodes: int, rows: list[Needs]) -> None:
    print(f"Weights, gradients and optimizer states of a model of {of}, on {nodes} machine{'s' * (nodes > 1)} with "
          f"{gpus} GPU{'s' * (gpus > 1)} each, by DeepSpeed's rule and without activations:")
    print("    machine |       GPU | with")
    for node, gpu, options in rows:
        print(f"{node / GIB:8.2f} GB |{gpu / GIB:7.2f} GB | {options}")
    print("What Penstock takes, and with NVMe: penstock.plan(model, config=..., store=...)")
