"""deepspeed.get_accelerator(): torch.cuda, or torch.cpu where there is no GPU."""
from __future__ import annotations

import functools
import os
from typing import Any

import torch

from ..errors import UsageError

THERE_ARE = ("cpu", "cuda")


class Accelerator:
    """What it does not answer itself, torch.cuda or torch.cpu does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._torch: Any = torch.cuda if name == "cuda" else torch.cpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    @property
    def is_gpu(self) -> bool:
        return self._name == "cuda"

    def device_name(self, device_index: int | None = None) -> str:
        return self._name if device_index is None or not self.is_gpu else f"{self._name}:{device_index}"

    def current_device(self) -> Any:
        return torch.cuda.current_device() if self.is_gpu else "cpu"

    def current_device_name(self) -> str:
        return self.device_name(torch.cuda.current_device() if self.is_gpu else None)

    def device(self, device_index: int | None = None) -> Any:
        return torch.device(self.device_name(device_index))

    def device_count(self) -> int:
        return torch.cuda.device_count() if self.is_gpu else 1

    def communication_backend_name(self) -> str:
        return "nccl" if self.is_gpu else "gloo"

    def is_available(self) -> bool:
        return True

    def is_synchronized_device(self) -> bool:
        return not self.is_gpu

    def is_bf16_supported(self) -> bool:
        return not self.is_gpu or torch.cuda.is_bf16_supported()

    def is_fp16_supported(self) -> bool:
        return True

    def is_triton_supported(self) -> bool:
        return self.is_gpu

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16, torch.float16]

    def preferred_dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.is_bf16_supported() else torch.float16

    def memory_allocated(self, device_index: Any = None) -> int:
        return torch.cuda.memory_allocated(device_index) if self.is_gpu else 0

    def max_memory_allocated(self, device_index: Any = None) -> int:
        return torch.cuda.max_memory_allocated(device_index) if self.is_gpu else 0

    def total_memory(self, device_index: Any = None) -> int:
        if self.is_gpu:
            return torch.cuda.get_device_properties(device_index).total_memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def empty_cache(self) -> None:
        if self.is_gpu:
            torch.cuda.empty_cache()

    def reset_peak_memory_stats(self, device_index: Any = None) -> None:
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats(device_index)

    def manual_seed(self, seed: int) -> Any:
        return torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> Any:
        return torch.manual_seed(seed)

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        return tensor.pin_memory() if self.is_gpu else tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._name


@functools.lru_cache
def get_accelerator() -> Accelerator:
    """DS_ACCELERATOR says which; else the GPU, where there is one and Accelerate was not told otherwise."""
    wanted = os.environ.get("DS_ACCELERATOR")
    if wanted is not None and wanted not in THERE_ARE:
        raise UsageError(f"DS_ACCELERATOR={wanted}: Penstock computes on {' and '.join(THERE_ARE)}")
    cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true") or \
        os.environ.get("ACCELERATE_TORCH_DEVICE", "").startswith("cpu")
    return Accelerator(wanted or ("cuda" if torch.cuda.is_available() and not cpu else "cpu"))
