"""What is installed beside torch and the C library: which one a program would get. Imports none of it."""
from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys

from ..machine import program
from ..version import PACKAGE, version
from .finding import Finding, in_the_way, ok, worth_knowing

OTHERS = ("transformers", "accelerate", "trl", "peft", "safetensors")


def look() -> list[Finding]:
    """Versions, which DeepSpeed, which program."""
    return [ok("python", f"{platform.python_version()}, {sys.executable}"), ok("penstock", f"{version()}, {PACKAGE}"),
            numpy(), others(), deepspeed(), the_program()]


def numpy() -> Finding:
    """Random states are kept with each step: torch's, Python's and numpy's."""
    try:
        return ok("numpy", importlib.metadata.version("numpy"))
    except importlib.metadata.PackageNotFoundError:
        return in_the_way("numpy", "not installed", "pip install numpy", 2)


def others() -> Finding:
    """Libraries that are used where they are there."""
    there = {}
    for name in OTHERS:
        try:
            there[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    missing = [name for name in OTHERS if name not in there]
    parts = [f"{name} {told}" for name, told in there.items()]
    return ok("libraries", ", ".join(parts + ([f"not installed: {', '.join(missing)}"] if missing else [])))


def deepspeed() -> Finding:
    """Which one a program of this environment gets."""
    try:
        from ..deepspeed import install
    except ImportError as problem:  # DeepSpeed itself is there
        return worth_knowing("deepspeed", str(problem), "as it says")
    told = install.state(install.Environment.of_this_python())
    if "in part" in told:
        return worth_knowing("deepspeed", told, "penstock deepspeed install")
    return ok("deepspeed", told)


def the_program() -> Finding:
    """The C++ one; the package trains without."""
    path = program.find()
    needed = f"{', '.join(program.VERBS)} need it; the package trains without"
    if path is None:
        return worth_knowing("program", f"none: {needed}", program.remedy())
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
        seen = told.stdout.strip() or told.stderr.strip().splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired, IndexError) as problem:
        return worth_knowing("program", f"{path} does not run ({problem}): {needed}", program.remedy())
    if told.returncode != 0:
        return worth_knowing("program", f"{path} does not run ({seen}): {needed}", program.remedy())
    if version() not in (seen.split()[-1], "unknown"):
        return worth_knowing("program", f"{seen}, {path}, beside the package {version()}", program.remedy())
    return ok("program", f"{seen}, {path}")
