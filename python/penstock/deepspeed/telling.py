"""deepspeed.utils.logging, and what tells of memory."""
from __future__ import annotations

import logging
import resource
from typing import Any

from ..errors import UsageError
from .accelerator import get_accelerator
from .comm import get_rank

LOGGER = logging.getLogger("penstock.deepspeed")  # transformers sets its level, which is not to be Penstock's
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
          "critical": logging.CRITICAL}
_told: set[Any] = set()


def log_dist(message: str, ranks: Any = None, level: int = logging.INFO) -> None:
    """Where `ranks` names this process, or has -1, or is not said."""
    if not ranks or -1 in ranks or get_rank() in ranks:
        LOGGER.log(level, "%s", message)


def log_dist_once(message: str, ranks: Any = None, level: int = logging.INFO) -> None:
    """The first time that this message comes."""
    if message not in _told:
        _told.add(message)
        log_dist(message, ranks, level)


def warning_once(message: str, *_: Any, **__: Any) -> None:
    """The same, as a warning."""
    log_dist_once(message, level=logging.WARNING)


def print_rank_0(message: str, debug: bool = False, force: bool = False) -> None:
    """Nothing, unless it is forced."""
    if force and get_rank() == 0:
        LOGGER.info("%s", message)


def set_log_level_from_string(log_level_str: str, custom_logger: logging.Logger | None = None) -> None:
    """By one of LEVELS."""
    if log_level_str.lower() not in LEVELS:
        raise UsageError(f"log level '{log_level_str}': there are {', '.join(LEVELS)}")
    (custom_logger or LOGGER).setLevel(LEVELS[log_level_str.lower()])


def see_memory_usage(message: str, force: bool = False) -> None:
    """The process's memory, and the GPU's where there is one."""
    if not force:
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    gpu = get_accelerator()
    of_gpu = f", GPU {gpu.memory_allocated() / 2**30:.2f} GiB, at most {gpu.max_memory_allocated() / 2**30:.2f}" \
        if gpu.is_gpu else ""
    LOGGER.info("%s: host at most %.2f GiB%s", message, peak, of_gpu)
