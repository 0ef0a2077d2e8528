"""The name `deepspeed` in an environment, for the processes that launchers start: a distribution, what each interpreter
runs as it starts, and the commands."""
from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ..errors import StorageError, UsageError
from . import registered

FINDER = "_penstock_deepspeed"
COMMANDS = {"deepspeed": "launcher", "ds_report": "report"}  # and the modules that have their main()
MARK = "# By python -m penstock deepspeed install."
SCRIPT = """#!{python}
{mark}
import sys

from penstock.deepspeed.{module} import main

sys.exit(main())
"""


@dataclass(frozen=True)
class Environment:
    """Where an environment has its packages and its commands."""

    packages: Path
    commands: Path

    @staticmethod
    def of_this_python() -> Environment:
        paths = sysconfig.get_paths()
        return Environment(Path(paths["purelib"]), Path(paths["scripts"]))

    @property
    def distribution(self) -> Path:
        return self.packages / registered.INSTALLED

    def files(self) -> dict[Path, str]:
        """All that is written, but for RECORD."""
        finder = Path(registered.__file__).read_text(encoding="utf-8")
        return {
            self.packages / f"{FINDER}.py": f"{MARK}\n{finder}",
            self.packages / f"{FINDER}.pth": f"import {FINDER}; {FINDER}.at_start()\n",
            self.distribution / "METADATA": registered.METADATA,
            self.distribution / "INSTALLER": f"{registered.OURS}\n",
            self.distribution / "top_level.txt": f"{registered.NAME}\n",
            **{self.commands / name: SCRIPT.format(python=sys.executable, mark=MARK, module=module)
               for name, module in COMMANDS.items()}}


def install(environment: Environment) -> list[Path]:
    """Writes them; what was written. A second time does nothing new. Raises UsageError where DeepSpeed itself, or a
    command of that name that is another's, is there, and StorageError where nothing can be written: then nothing is."""
    real = real_in(environment)
    if real is not None:
        raise UsageError(f"DeepSpeed itself is installed, {real}: remove it first (pip uninstall deepspeed), because a "
                         "program can have one of the two")
    files = environment.files()
    for path in files:
        if path.parent == environment.commands and path.exists() and MARK not in path.read_text(errors="replace"):
            raise UsageError(f"{path} is another's command: remove it, or use another environment")
    try:
        environment.distribution.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
            if path.parent == environment.commands:
                path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        record = environment.distribution / "RECORD"
        listed = [os.path.relpath(path, environment.packages) for path in (*files, record)]
        record.write_text("".join(f"{path},,\n" for path in listed), encoding="utf-8")
    except OSError as problem:
        remove(environment)
        raise StorageError(f"{problem.filename}: {problem.strerror}; install into a virtual environment of your own, "
                           "python -m venv DIR") from problem
    return [*files, record]


def remove(environment: Environment) -> list[Path]:
    """What of it was there."""
    gone = []
    for path in environment.files():
        if path.exists() and environment.distribution not in path.parents and (
                path.suffix == ".pth" or MARK in path.read_text(errors="replace")):
            path.unlink()
            gone.append(path)
    if environment.distribution.is_dir():
        shutil.rmtree(environment.distribution)
        gone.append(environment.distribution)
    return gone


def real_in(environment: Environment) -> str | None:
    """DeepSpeed itself, by its package there or its distribution."""
    package = environment.packages / registered.NAME / "__init__.py"
    if package.exists():
        return str(package)
    others = [each for each in environment.packages.glob(f"{registered.NAME}-*.dist-info")
              if each.name != registered.INSTALLED]
    return str(others[0]) if others else None


def state(environment: Environment) -> str:
    """In a sentence: which DeepSpeed a program of this environment gets."""
    real = real_in(environment)
    if real is not None:
        return f"DeepSpeed itself, {real}"
    files = [*environment.files(), environment.distribution / "RECORD"]
    missing = [str(path) for path in files if not path.exists()]
    if len(missing) == len(files):
        return ("none, unless its first line is `import penstock.deepspeed`; for programs that start processes say "
                "`python -m penstock deepspeed install`")
    if missing:
        return f"Penstock's, in part: {', '.join(missing)} is missing; say `python -m penstock deepspeed install` again"
    return f"Penstock's, version {registered.VERSION}, in {environment.packages}"
