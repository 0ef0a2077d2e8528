"""The words of DeepSpeed's launcher."""
from __future__ import annotations

import argparse
import shlex
from typing import Any

from ..errors import UsageError
from .hostfile import DEFAULT

LAUNCHERS = ("ssh", "openmpi", "slurm")
GONE = {  # and what serves
    "autotuning": "penstock plan says what settings cost, and which are faster",
    "elastic_training": "start it by torchrun --nnodes MIN:MAX",
    "min_elastic_nodes": "start it by torchrun --nnodes MIN:MAX",
    "max_elastic_nodes": "start it by torchrun --nnodes MIN:MAX",
    "slurm_comment": "say --launcher_args '--comment TEXT'",
    "detect_nvlink_pairs": "say the order by CUDA_VISIBLE_DEVICES"}


class Gone(argparse.Action):
    """A word of another version's: named with what serves, whatever stands behind it."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        parser.error(f"--{self.dest}: Penstock's launcher has no such thing; {GONE[self.dest]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """To a parser of no others, because all words behind the script are the script's."""
    which = parser.add_argument_group("which hosts and slots")
    which.add_argument("-H", "--hostfile", metavar="FILE",
                       help=f"lines HOST slots=NUMBER ({DEFAULT}; without one: this machine)")
    which.add_argument("-i", "--include", default="", metavar="HOSTS", help="NAME[:SLOT[,SLOT...]]@...: these alone")
    which.add_argument("-e", "--exclude", default="", metavar="HOSTS", help="all but these")
    which.add_argument("--num_nodes", type=int, default=-1, metavar="N", help="the first N hosts")
    which.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1, metavar="N",
                       help="the first N slots of each; without GPUs: N processes")
    meet = parser.add_argument_group("where they meet")
    meet.add_argument("--master_addr", default="", metavar="ADDRESS", help="of the first host (its first address)")
    meet.add_argument("--master_port", type=int, metavar="PORT",
                      help="29500; on one machine another where that is in use")
    script = parser.add_argument_group("what is started")
    script.add_argument("--module", action="store_true", help="the script is a module, as python -m takes it")
    script.add_argument("--no_python", action="store_true", help="the script is a program")
    script.add_argument("--no_local_rank", action="store_true", help="it gets no --local_rank=N")
    hosts = parser.add_argument_group("several hosts")
    hosts.add_argument("--launcher", default="ssh", metavar="NAME",
                       help=f"{', '.join(LAUNCHERS)} (%(default)s); pdsh is taken as ssh")
    hosts.add_argument("--launcher_args", default="", metavar="WORDS", help="for ssh, mpirun or srun, as one argument")
    hosts.add_argument("--ssh_port", type=int, metavar="PORT")
    hosts.add_argument("--no_ssh_check", action="store_true", help="hosts are not asked beforehand")
    hosts.add_argument("--force_multi", action="store_true", help="a single host is reached by ssh, too")
    hosts.add_argument("--no_ssh", action="store_true", help="only this host's processes are started: say --node_rank")
    hosts.add_argument("--node_rank", type=int, default=-1, metavar="K", help="which host this is, from 0")
    hosts.add_argument("--venv_script", metavar="FILE", help="read by the shell of each host first")
    more = parser.add_argument_group("cores and logs")
    more.add_argument("--bind_cores_to_rank", action="store_true", help="each process has cores of its own")
    more.add_argument("--bind_core_list", metavar="LIST", help="0-3,8: of these cores")
    more.add_argument("--enable_each_rank_log", default="", metavar="DIR",
                      help="a file there for what each rank prints")
    more.add_argument("--save_pid", action="store_true", help="the launcher's process id in /tmp/PID.deepspeed")
    more.add_argument("-q", "--quiet", action="store_true", help="errors alone")
    more.add_argument("--log_level", default="info", choices=("debug", "info", "warning", "error", "critical"),
                      help="error: as --quiet")
    for each in GONE:
        parser.add_argument(f"--{each}", nargs="?", action=Gone, help=argparse.SUPPRESS)
    parser.add_argument("--of_job", default="", help=argparse.SUPPRESS)  # what a launcher says to that of another host
    parser.add_argument("--hears", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("user_script", metavar="SCRIPT", help="a file, a module or a program; or train, the program's")
    parser.add_argument("user_args", metavar="...", nargs=argparse.REMAINDER, help="all else is the script's")


def check(options: argparse.Namespace) -> None:
    """Raises UsageError for words that do not go together."""
    filters = [f"--{name} {said}" for name in ("include", "exclude") if (said := getattr(options, name))]
    counts = [f"--{name} {said}" for name in ("num_nodes", "num_gpus") if (said := getattr(options, name)) >= 0]
    if len(filters) > 1 or filters and counts:
        raise UsageError(f"{' and '.join([*filters, *counts])}: say one; a filter says how many by itself")
    if options.module and options.no_python:
        raise UsageError("--module and --no_python: a module is run by Python")
    if options.bind_core_list and not options.bind_cores_to_rank:
        raise UsageError(f"--bind_core_list {options.bind_core_list}: say --bind_cores_to_rank, too")
    if options.no_ssh != (options.node_rank >= 0):
        said = "no_ssh" if options.no_ssh else f"node_rank {options.node_rank}"
        raise UsageError(f"--{said}: say both --no_ssh and --node_rank K, on each host")
    options.launcher = options.launcher.lower().replace("pdsh", "ssh")
    if options.launcher not in LAUNCHERS:
        raise UsageError(f"--launcher {options.launcher}: there are {', '.join(LAUNCHERS)}; start another MPI's own "
                         "command, mpirun python train.py, yourself")
    try:
        shlex.split(options.launcher_args)
    except ValueError as problem:
        raise UsageError(f"--launcher_args {options.launcher_args}: {problem}") from problem
    if options.master_port is not None and not 0 < options.master_port < 65536:
        raise UsageError(f"--master_port {options.master_port} is no port")
    if options.enable_each_rank_log == "None":  # DeepSpeed's word for none
        options.enable_each_rank_log = ""
    options.quiet = options.quiet or options.log_level in ("error", "critical")
