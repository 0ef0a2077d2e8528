"""Memory, limits, processors and huge pages of the process, as the program reads them (pinned_pool/machine_memory.cpp,
zero_infinity/threads/usable_cores.cpp, trainer/cli/memory_limits.cpp). `root` stands before /proc and /sys: a test
shows another machine."""
from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from ..machine.cgroups import folders, number_in, numbers_in, text_of
from ..machine.host_memory import FILES, HostMemory
from ..machine.sizes import size
from .finding import Finding, in_the_way, ok, worth_knowing

LEAST_BYTES, LITTLE_BYTES = 512 << 20, 2 << 30
LOCKED_ENOUGH = 1 << 30
CAP_IPC_LOCK = 14
FIRST_USER_NAMESPACE = "user:[4026531837]"  # its number is fixed, as pinned_pool/machine_memory.cpp says
LIMITS = {"data segments (ulimit -d)": resource.RLIMIT_DATA, "address space (ulimit -v)": resource.RLIMIT_AS,
          "length of files (ulimit -f)": resource.RLIMIT_FSIZE}


def look(root: str = "") -> list[Finding]:
    """Reads a few files of the kernel's."""
    return [memory(root), swap(root), group(root), cores(root), limits(), huge_pages(root), locked(root)]


def memory(root: str = "") -> Finding:
    """RAM, and how much of it the process can have."""
    there = HostMemory.read(root)
    total = numbers_in(f"{root}/proc/meminfo").get("MemTotal", 0) * 1024
    seen = f"{size(there.available_bytes)} of {size(total)} can be had ({there.limited_by})"
    remedy = "end what else is running, or raise the limit of the container or job (docker run --memory, Slurm's --mem)"
    if there.available_bytes < LEAST_BYTES:
        return in_the_way("memory", seen, remedy, 3)
    return worth_knowing("memory", seen, remedy) if there.available_bytes < LITTLE_BYTES else ok("memory", seen)


def swap(root: str = "") -> Finding:
    """Of the system's; Penstock needs none."""
    stated = numbers_in(f"{root}/proc/meminfo")
    total, free = (stated.get(name, 0) * 1024 for name in ("SwapTotal", "SwapFree"))
    return ok("swap", f"{size(total - free)} of {size(total)} used" if total else "none, and none is needed")


def group(root: str = "") -> Finding:
    """Limits of control groups on memory."""
    found = []
    total = numbers_in(f"{root}/proc/meminfo").get("MemTotal", 0) * 1024
    for folder, version in folders("memory", root):
        name = f"{folder}/{FILES[version][0]}"
        limit = number_in(f"{root}{name}")
        if limit is not None and (not total or limit < total):  # version 1 says a huge number for none
            found.append(f"{size(limit)} ({name})")
    return ok("memory limit", ", ".join(found) or "no control group has one below the RAM")


@dataclass(frozen=True)
class Quota:
    """Processors' worth of time, of a control group."""

    count: float
    file: str

    @staticmethod
    def read(root: str = "") -> Quota | None:
        """The least."""
        return min(_quotas(root), key=lambda each: each.count, default=None)


def _quotas(root: str) -> Iterator[Quota]:
    for folder, version in folders("cpu", root):
        name = f"{folder}/{'cpu.max' if version == 2 else 'cpu.cfs_quota_us'}"
        words = text_of(f"{root}{name}").split()
        words += text_of(f"{root}{folder}/cpu.cfs_period_us").split() if version == 1 else []
        if len(words) >= 2 and all(re.fullmatch(r"\d+", each) and int(each) > 0 for each in words[:2]):
            yield Quota(int(words[0]) / int(words[1]), name)


def cores(root: str = "") -> Finding:
    """How many threads can run at once."""
    mask, quota = len(os.sched_getaffinity(0)), Quota.read(root)
    machine = f"{mask} of the machine's {os.cpu_count()} processors"
    if quota is None or math.ceil(quota.count) >= mask:
        load = float((text_of(f"{root}/proc/loadavg").split() or ["0"])[0])
        if load < 1 + (os.cpu_count() or 1):
            return ok("cores", machine)
        return worth_knowing("cores", f"{machine}, and {load:g} tasks want one (mean of the last minute)",
                             "what computes beside slows a training, and the figures of the disk above: end it, or "
                             "export OMP_WAIT_POLICY=passive")
    threads = math.ceil(quota.count)
    return worth_knowing("cores", f"{machine}, and time of {quota.count:g} of them ({quota.file})",
                         f"torch starts a thread for each that it sees: export OMP_NUM_THREADS={threads}")


def limits() -> Finding:
    """Of the process, which no machine's or container's numbers show."""
    found = [f"{name}: {size(soft)}" for name, kind in LIMITS.items()
             if (soft := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY]
    if not found:
        return ok("limits", "none on data segments, address space and length of files")
    options = " ".join(f"ulimit {re.findall('-.', each)[0]} unlimited;" for each in found).rstrip(";")
    return worth_knowing("limits", ", ".join(found), f"in the shell that starts the training: {options}")


def huge_pages(root: str = "") -> Finding:
    """Transparent ones, which the pool asks for."""
    text = text_of(f"{root}/sys/kernel/mm/transparent_hugepage/enabled").strip()
    chosen = re.findall(r"\[(\w+)\]", text)
    slower = "without them direct I/O costs more of the processor"
    if numbers_in(f"{root}/proc/self/status").get("THP_enabled", 1) == 0:
        return worth_knowing("huge pages", f"switched off for this process; {slower}",
                             "start it without the wrapper that says prctl(PR_SET_THP_DISABLE)")
    if not chosen:
        return worth_knowing("huge pages", f"this kernel has no transparent ones; {slower}",
                             "a kernel with CONFIG_TRANSPARENT_HUGEPAGE")
    if chosen[0] == "never":
        return worth_knowing("huge pages", f"transparent ones are off ({text}); {slower}",
                             "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    return ok("huge pages", f"transparent ones: {chosen[0]}")


def locked(root: str = "") -> Finding:
    """How much memory may be registered with a ring."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    seen = f"{_limit(soft)} (hard limit {_limit(hard)})"
    if _may_lock_all(root):
        return ok("memlock", f"{seen}, which does not bind this process: it has CAP_IPC_LOCK")
    if soft == resource.RLIM_INFINITY or soft >= LOCKED_ENOUGH:
        return ok("memlock", seen)
    remedy = "ulimit -l unlimited" if hard == resource.RLIM_INFINITY else (
        "as root a line 'USER - memlock unlimited' in /etc/security/limits.conf, and a new login; of a container "
        "docker run --ulimit memlock=-1")
    return worth_knowing("memlock", f"{seen}: a pool that is larger is not registered with io_uring, which costs some "
                                    "time of the processor", remedy)


def _limit(count: int) -> str:
    return "unlimited" if count == resource.RLIM_INFINITY else size(count)


def _may_lock_all(root: str) -> bool:
    try:
        if os.readlink(f"{root}/proc/self/ns/user") != FIRST_USER_NAMESPACE:
            return False
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text_of(f"{root}/proc/self/status"), re.M)
    return found is not None and bool(int(found[1], 16) >> CAP_IPC_LOCK & 1)
