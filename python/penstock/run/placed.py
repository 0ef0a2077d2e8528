"""Where a training lies, in one line: what is told at its opening."""
from __future__ import annotations

from ..core import CoreFigures
from ..machine.sizes import size
from ..store import Store

TIERS = {"nvme": "on NVMe", "cpu": "in host memory", "auto": "in host memory, or on NVMe where it has no room"}


def line(store: Store, figures: CoreFigures) -> str:
    uses = ", ".join(f"{name} {size(count)}" for name, count in figures.host_uses.items() if count)
    nvme = f"; NVMe {size(figures.nvme_bytes)} in {', '.join(store.paths())}" if figures.nvme_bytes else ""
    device = f"; {store.device} {size(figures.device_bytes)}" if figures.device_bytes else ""
    return (f"weights {TIERS[store.weights]}, gradients {TIERS[store.gradients]}, optimizer states "
            f"{TIERS[store.states]}; host memory {size(sum(figures.host_uses.values()))} ({uses}){nvme}{device}; "
            f"update order {store.update_order}")
