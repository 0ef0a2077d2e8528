"""What an engine answers of its configuration, by DeepSpeed's calls."""
from __future__ import annotations

from typing import Any

from .echoed import Echoes


class Answers(Echoes):
    """A base of engines. `config` is the dictionary that was given."""

    config: dict[str, Any]
    mpu = None
    mp_world_size = 1

    @property
    def dp_world_size(self) -> int:
        """All processes have the whole model, and rows of their own."""
        count: int = self.world_size  # type: ignore[attr-defined]
        return count

    def _section(self, *names: str) -> dict[str, Any]:
        """The first of these that is there."""
        return next((self.config[name] for name in names if self.config.get(name)), {})

    @property
    def _zero(self) -> dict[str, Any]:
        return self._section("zero_optimization")

    def zero_optimization_stage(self) -> int:
        return int(self._zero.get("stage") or 0)

    def zero_optimization(self) -> bool:
        return self.zero_optimization_stage() > 0

    def zero_optimization_partition_gradients(self) -> bool:
        return self.zero_optimization_stage() >= 2

    def zero_optimization_partition_weights(self) -> bool:
        return self.zero_optimization_stage() >= 3

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        return bool(self._zero.get("stage3_gather_16bit_weights_on_model_save") or
                    self._zero.get("stage3_gather_fp16_weights_on_model_save"))

    def zero_offload_optimizer(self) -> Any:
        return self._offload("offload_optimizer", "cpu_offload")

    def zero_offload_param(self) -> Any:
        return self._offload("offload_param", "cpu_offload_params")

    def _offload(self, section: str, older: str) -> Any:
        return self._zero.get(section) or ({"device": "cpu"} if self._zero.get(older) else None)

    def zero_use_cpu_optimizer(self) -> bool:
        return (self.zero_offload_optimizer() or {}).get("device") in ("cpu", "nvme")

    def zero_cpu_offload(self) -> bool:
        return (self.zero_offload_optimizer() or {}).get("device") == "cpu"

    def fp16_enabled(self) -> bool:
        return self._section("fp16").get("enabled") is True

    def bfloat16_enabled(self) -> bool:
        return self._section("bf16", "bfloat16").get("enabled") is True

    def amp_enabled(self) -> bool:
        return False

    def dynamic_loss_scale(self) -> bool:
        return not self._section("fp16").get("loss_scale")

    def optimizer_name(self) -> str | None:
        return self._section("optimizer").get("type")

    def optimizer_params(self) -> Any:
        return self._section("optimizer").get("params")

    def scheduler_name(self) -> str | None:
        return self._section("scheduler").get("type")

    def scheduler_params(self) -> Any:
        return self._section("scheduler").get("params")

    def steps_per_print(self) -> Any:
        return self.config.get("steps_per_print")

    def wall_clock_breakdown(self) -> bool:
        return bool(self.config.get("wall_clock_breakdown"))

    def gradient_predivide_factor(self) -> float:
        return 1.0

    def autotp_size(self) -> int:
        return 0

    def sequence_parallel_size(self) -> int:
        return 1
