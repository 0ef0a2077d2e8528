"""The command `deepspeed`: one process of the user's script, as DeepSpeed's launcher starts it on one GPU."""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from ..errors import UsageError
from .comm import OF_LAUNCHERS

ENVIRONMENT_FILE = ".deepspeed_env"
COMING = "Penstock trains with one process until it has ranks: say --num_gpus 1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script in this process; its exit code."""
    options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        check_alone(options)
    except UsageError as problem:
        print(f"deepspeed: {problem}", file=sys.stderr)
        return 2
    os.environ.update(environment_of_file())
    gpu = options.include.partition(":")[2]
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ.update(OF_LAUNCHERS, LOCAL_SIZE="1", MASTER_PORT=str(options.master_port))
    own = [] if options.no_local_rank else ["--local_rank=0"]
    sys.argv = [options.user_script, *own, *options.user_args]
    if options.module:
        runpy.run_module(options.user_script, run_name="__main__", alter_sys=True)
        return 0
    sys.path[0:0] = [os.path.dirname(os.path.abspath(options.user_script))]
    runpy.run_path(options.user_script, run_name="__main__")
    return 0


def check_alone(options: argparse.Namespace) -> None:
    """Raises UsageError where more than one process is asked for, with the words by which that was."""
    for name, count in (("--num_gpus", options.num_gpus), ("--num_nodes", options.num_nodes)):
        if count is not None and count > 1:
            raise UsageError(f"{name} {count}: {COMING}")
    for name, said in (("--include", options.include), ("--exclude", options.exclude)):
        if said and ("," in said or "@" in said or name == "--exclude"):
            raise UsageError(f"{name} {said}: {COMING}")
    if options.hostfile and sum(slots_of_file(options.hostfile).values()) > 1 and options.num_gpus != 1:
        raise UsageError(f"--hostfile {options.hostfile} names several slots: {COMING}")


def slots_of_file(path: str) -> dict[str, int]:
    """By host. Raises UsageError with the line."""
    slots: dict[str, int] = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as problem:
        raise UsageError(f"--hostfile {path}: {problem.strerror}") from problem
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        host, _, count = text.partition(" slots=")
        if not host or " " in host or not count.strip().isdecimal() or host in slots:
            raise UsageError(f"{path}, line {number}: '{line}' is not HOST slots=NUMBER, once for each host")
        slots[host] = int(count)
    return slots


def environment_of_file() -> dict[str, str]:
    """NAME=VALUE by line, of the file in the home directory or here."""
    found: dict[str, str] = {}
    for folder in (os.path.expanduser("~"), "."):
        path = os.path.join(folder, ENVIRONMENT_FILE)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                for name, sign, value in (line.partition("=") for line in file.read().splitlines()):
                    if sign:
                        found[name] = value
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("deepspeed", description=f"Starts a script written for DeepSpeed. {COMING}.")
    parser.add_argument("-H", "--hostfile", default="", help="lines HOST slots=NUMBER")
    parser.add_argument("-i", "--include", default="", help="localhost:0")
    parser.add_argument("-e", "--exclude", default="")
    parser.add_argument("--num_nodes", type=int)
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, help="1, also where it is not said")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("--master_addr", default="")
    parser.add_argument("--module", action="store_true", help="the script is a module, as python -m takes it")
    parser.add_argument("--no_python", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no_local_rank", action="store_true", help="the script gets no --local_rank")
    parser.add_argument("--no_ssh", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--force_multi", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bind_cores_to_rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--save_pid", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--enable_each_rank_log", default="", help=argparse.SUPPRESS)
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser
