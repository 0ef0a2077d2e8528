"""Torch, and what it says of a GPU."""
from __future__ import annotations

import importlib
import importlib.metadata
import re
from pathlib import Path
from typing import Any

from ..machine.cgroups import text_of
from ..machine.sizes import size
from ..version import PACKAGE
from .finding import Finding, in_the_way, ok, worth_knowing


def look() -> list[Finding]:
    """Imports torch."""
    least = least_version()
    install = f'pip install "torch>={least}"'
    try:
        torch: Any = importlib.import_module("torch")
        told = str(torch.__version__)
    except Exception as problem:
        missing = isinstance(problem, ModuleNotFoundError) and problem.name == "torch"
        seen = "not installed" if missing else f"cannot be imported: {type(problem).__name__}: {problem}"
        again = install.replace("install", "install --force-reinstall", 1)
        return [in_the_way("torch", seen, install if missing else again), gpu(None)]
    if numbers_of(told) < numbers_of(least):
        return [in_the_way("torch", f"{told}, and the package takes {least} and later", install), gpu(torch)]
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    seen = f"{told}, {torch.get_num_threads()} threads, {f'CUDA {built}' if built else 'without CUDA'}"
    return [ok("torch", seen), gpu(torch)]


def least_version() -> str:
    """That the package asks for: of the checkout, else of the distribution."""
    asked = [text_of(str(PACKAGE.parent / "pyproject.toml"))]
    try:
        asked += importlib.metadata.requires("penstock") or []
    except importlib.metadata.PackageNotFoundError:
        pass
    found = (re.search(r"\btorch *>= *([0-9.]+)", each) for each in asked)
    return next((each[1] for each in found if each is not None), "2.4")


def numbers_of(told: str) -> tuple[int, ...]:
    """Of a version: 2.11.0+cpu is later than 2.4."""
    return tuple(int(each) for each in re.findall(r"\d+", told.partition("+")[0])[:3])


def gpu(torch: Any) -> Finding:
    """As torch finds it, or as the driver's files are there."""
    driver = " ".join(re.findall(r"Kernel Module\s+([\d.]+)", text_of("/proc/driver/nvidia/version"))[:1])
    seen_driver = f"driver {driver}" if driver else "no driver of NVIDIA's"
    if torch is not None and torch.cuda.is_available():
        found = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
        return ok("GPU", f"{', '.join(f'{each.name} ({size(each.total_memory)})' for each in found)}; {seen_driver}")
    if not driver and not Path("/dev/nvidiactl").exists():
        return ok("GPU", "none: models compute on the CPU")
    if torch is None:
        return worth_knowing("GPU", f"{seen_driver}, and there is no torch to ask", "see torch")
    without = torch.version.cuda is None
    return worth_knowing("GPU", f"{seen_driver}, and torch {torch.__version__} finds none" + (
        ": it was built without CUDA" if without else ""), "install a torch that was built with CUDA (pip install "
        "--force-reinstall torch)" if without else "nvidia-smi must list it; of a container: docker run --gpus all")
