"""`import deepspeed`, and the distribution of that name, are Penstock's in this process.

Stands by itself: `python -m penstock deepspeed install` copies this file into an environment, where each interpreter
that starts runs at_start(). So it imports neither torch nor the package before somebody asks for `deepspeed`."""
from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import os
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from typing import Any

# What programs ask for with >= is true of it; Axolotl asks for less than 0.19, LLaMA-Factory for 0.18.
VERSION = "0.18.9+penstock"
NAME = "deepspeed"
METADATA = (f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
            "Summary: DeepSpeed's interface, answered by Penstock\n")
INSTALLED = f"{NAME}-{VERSION}.dist-info"  # what install.py writes
OURS = "penstock"  # the INSTALLER of that distribution


def register() -> None:
    """Does nothing the second time. Raises ImportError where DeepSpeed itself is there, or where it would come too
    late: then nothing has changed."""
    if any(is_ours(each) for each in sys.meta_path):
        return
    real = real_deepspeed()
    if real is not None:
        raise ImportError(f"DeepSpeed itself is installed, {real}, and `import penstock.deepspeed` would stand for it: "
                          "remove the one (pip uninstall deepspeed) or the other (that line, or `python -m penstock "
                          "deepspeed remove`)")
    late = who_came_before()
    if late is not None:
        raise ImportError(f"{late} was imported before penstock.deepspeed, and has found no DeepSpeed, for which "
                          "it looks once: make `import penstock.deepspeed` the first line of the program, or say `python -m "
                          "penstock deepspeed install` once")
    sys.meta_path.insert(0, Finder())


def at_start() -> None:
    """Of an interpreter, where it was installed: what is wrong is told, and the program goes on without."""
    try:
        register()
    except ImportError as problem:
        print(f"penstock: {problem}", file=sys.stderr)


def is_ours(finder: object) -> bool:
    """Also one of the copy that was installed."""
    return getattr(finder, "of_penstock", False) is True


def real_deepspeed() -> str | None:
    """Where DeepSpeed itself is; None where it is not. A folder of that name beside a script, without code, is none."""
    loaded = sys.modules.get(NAME)
    spec = importlib.machinery.PathFinder.find_spec(NAME) if loaded is None else loaded.__spec__
    return None if spec is None or is_ours(spec.loader) else spec.origin


def who_came_before() -> str | None:
    """A library that was imported without a DeepSpeed; by what it has, or lacks, because of that."""
    def lacks(module: str, name: str) -> bool:
        return module in sys.modules and not hasattr(sys.modules[module], name)
    if lacks("accelerate.accelerator", "DeepSpeedEngineWrapper"):
        return "accelerate"
    integration = sys.modules.get("transformers.integrations.deepspeed")
    if integration is not None and getattr(integration, "DeepSpeedConfig", None) is object:
        return "transformers"
    return None


class Finder(MetaPathFinder, Loader):
    """Makes modules of names.MODULES when they are imported."""

    of_penstock = True

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        if importlib.machinery.PathFinder.find_spec("penstock") is None:
            return None  # it was removed since it was installed for
        names = _names()
        if fullname not in names.MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=names.__file__, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _names().Surface(spec.name)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []
        module.__file__ = _names().__file__

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """One of that name, unless it was installed: then the path has it."""
        asked = getattr(context, "name", None)
        if asked in (None, NAME) and not any(os.path.isdir(os.path.join(each, INSTALLED)) for each in sys.path):
            yield Distribution()


class Distribution(importlib.metadata.Distribution):
    """What importlib.metadata says of `deepspeed`."""

    def read_text(self, filename: str) -> str | None:
        return {"METADATA": METADATA, "top_level.txt": f"{NAME}\n", "INSTALLER": OURS}.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parent / path


def _names() -> Any:
    return importlib.import_module("penstock.deepspeed.names")
