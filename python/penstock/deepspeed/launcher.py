"""The command `deepspeed`: the words of `penstock launch`. One process is the user's script in this one; several are
started as there."""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Sequence

from ..errors import UsageError
from ..launch import arguments, environment, gpus, script, slots, start
from ..launch.children import voice
from ..launch.environment import FILE as ENVIRONMENT_FILE
from ..launch.hostfile import Hosts
from ..launch.job import one_process, variables_of

OF_CHILDREN = ("no_ssh", "force_multi", "bind_cores_to_rank", "enable_each_rank_log", "save_pid", "of_job", "hears")

__all__ = ["ENVIRONMENT_FILE", "main"]  # which deepspeed.launcher.runner has, too


def main(given: Sequence[str] | None = None) -> int:
    """Runs the script; the exit code."""
    parser = argparse.ArgumentParser("deepspeed", usage="deepspeed [OPTIONS] SCRIPT ...", description="Starts a script "
                                     "written for DeepSpeed once for each slot. docs/launch.md of Penstock tells more.")
    arguments.add_arguments(parser)
    options = parser.parse_args(sys.argv[1:] if given is None else given)
    try:
        arguments.check(options)
        hosts = slots.taken(options, voice(parser.prog, quiet=True))
        if not is_this_one(options, hosts):
            tell_of_cpu(hosts, voice(parser.prog, options.quiet))
            return start.run(options, parser.prog)
        script.check(options)
        lines = environment.of_files()
    except UsageError as problem:
        print(f"{parser.prog}: {problem}", file=sys.stderr)
        return 2
    os.environ.update(lines)
    gpu = options.include.partition(":")[2]
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ.update(variables_of(one_process(options.master_port or one_process().master_port), 0, 0))
    become(options)
    return 0


def is_this_one(options: argparse.Namespace, hosts: Hosts) -> bool:
    """Whether one process is asked for, of this machine, with nothing that somebody must do beside it."""
    if options.launcher != "ssh" or any(getattr(options, each) for each in OF_CHILDREN):
        return False
    return len(hosts) == 1 and len(hosts[0].slots) == 1 and hosts[0].name == slots.HERE


def tell_of_cpu(hosts: Hosts, tell: Callable[[str], None]) -> None:
    """Who says --num_gpus 2 on a machine without GPUs has two processes nevertheless, as with DeepSpeed's DS_ACCELERATOR=cpu."""
    if len(hosts) == 1 and hosts[0].name == slots.HERE and not gpus.count():
        tell(f"there is no GPU here: {len(hosts[0].slots)} processes are started that compute on the CPU")


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
