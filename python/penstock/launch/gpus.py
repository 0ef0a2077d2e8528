"""How many GPUs this machine has."""
from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from ..errors import UsageError

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, AMD, and of Windows' subsystem for Linux
COUNT = "import torch; print(torch.cuda.device_count())"
SECONDS = 120


@lru_cache(maxsize=None)
def count() -> int:
    """As torch counts them, in a process of its own: a launcher holds no GPU. 0 without a driver. Raises UsageError."""
    if not any(Path(each).exists() for each in DRIVERS):
        return 0
    try:
        done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=SECONDS,
                              check=True)
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        said = (getattr(problem, "stderr", "") or str(problem)).strip().splitlines()
        raise UsageError("there is a GPU's driver, and torch cannot say how many there are: "
                         f"{said[-1] if said else type(problem).__name__}; say --num_gpus") from problem
