"""What a user wants started, as a command line."""
from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys

from ..errors import UsageError
from ..machine import program

TRAIN = "train"  # the program's verb


def is_of_the_program(options: argparse.Namespace) -> bool:
    """`launch train CONFIG`; a script may have that name, too."""
    return options.user_script == TRAIN and not (options.module or options.no_python or os.path.exists(TRAIN))


def check(options: argparse.Namespace) -> None:
    """Raises UsageError where it is not there."""
    script = options.user_script
    if is_of_the_program(options):
        if program.find([TRAIN]) is None:
            raise UsageError(f"launch {TRAIN} needs the program {program.NAME}: {program.remedy()}")
    elif options.no_python:
        if shutil.which(script) is None:
            raise UsageError(f"--no_python {script}: neither here nor in PATH, or it is not executable")
    elif options.module:
        if not _is_module(script):
            raise UsageError(f"--module {script}: Python finds no {script.partition('.')[0]} from here (PYTHONPATH)")
    elif not os.path.exists(script):
        raise UsageError(f"{script}: there is no such script; --module takes a module, --no_python a program")


def words_of(options: argparse.Namespace, local_rank: int | str) -> list[str]:
    """As DeepSpeed's launcher writes them."""
    script, rest = options.user_script, list(options.user_args)
    if is_of_the_program(options):
        return [program.find([TRAIN]) or program.NAME, TRAIN, *rest]
    own = [] if options.no_local_rank else [f"--local_rank={local_rank}"]
    if options.no_python:
        return [shutil.which(script) or script, *own, *rest]
    return [sys.executable, "-u", *(["-m"] if options.module else []), script, *own, *rest]


def _is_module(name: str) -> bool:
    sys.path.insert(0, os.getcwd())  # where `python -m` looks
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.pop(0)
