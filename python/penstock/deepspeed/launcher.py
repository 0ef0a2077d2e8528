"""The command `deepspeed`: the words of `penstock launch`, and one process of the user's script, in this one."""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from ..errors import UsageError
from ..launch import arguments, environment, hostfile, script
from ..launch.environment import FILE as ENVIRONMENT_FILE
from ..launch.job import one_process, variables_of

COMING = "Penstock trains with one process until it has ranks: say --num_gpus 1"

__all__ = ["COMING", "ENVIRONMENT_FILE", "main"]  # which deepspeed.launcher.runner has, too


def main(given: Sequence[str] | None = None) -> int:
    """Runs the script in this process; its exit code."""
    parser = argparse.ArgumentParser("deepspeed", usage="deepspeed [OPTIONS] SCRIPT ...", description=f"Starts a script "
                                     f"written for DeepSpeed. {COMING}. Other scripts: penstock launch.")
    arguments.add_arguments(parser)
    options = parser.parse_args(sys.argv[1:] if given is None else given)
    try:
        arguments.check(options)
        check_alone(options)
        script.check(options)
        lines = environment.of_files()
    except UsageError as problem:
        print(f"deepspeed: {problem}", file=sys.stderr)
        return 2
    os.environ.update(lines)
    gpu = options.include.partition(":")[2]
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ.update(variables_of(one_process(options.master_port or one_process().master_port), 0, 0))
    become(options)
    return 0


def become(options: argparse.Namespace) -> None:
    """The script, which is the main program then."""
    words = script.words_of(options, 0)
    if options.no_python or script.is_of_the_program(options):
        os.execv(words[0], words)
    sys.argv = words[words.index(options.user_script):]
    if options.module:
        runpy.run_module(options.user_script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0:0] = [os.path.dirname(os.path.abspath(options.user_script))]
        runpy.run_path(options.user_script, run_name="__main__")


def check_alone(options: argparse.Namespace) -> None:
    """Raises UsageError where more than one process is asked for, with the words by which that was. With ranks its call
    becomes `return launch.start.run(options, "deepspeed")`, which starts several."""
    for name, count in (("--num_gpus", options.num_gpus), ("--num_nodes", options.num_nodes)):
        if count > 1:
            raise UsageError(f"{name} {count}: {COMING}")
    for name, said in (("--include", options.include), ("--exclude", options.exclude)):
        if said and ("," in said or "@" in said or name == "--exclude"):
            raise UsageError(f"{name} {said}: {COMING}")
    if options.hostfile and options.num_gpus != 1:
        if sum(len(each.slots) for each in hostfile.read_hostfile(options.hostfile)) > 1:
            raise UsageError(f"--hostfile {options.hostfile} names several slots: {COMING}")
