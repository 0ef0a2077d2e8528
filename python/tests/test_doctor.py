"""penstock doctor: what it sees of a machine, also of one on which nothing works, and that it never waits for ever."""
from __future__ import annotations

import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import penstock.doctor.probes as probes
from cores import NATIVE
from penstock.__main__ import main
from penstock.command import doctor as verb
from penstock.doctor import core_library, disk, machine, software, torch_and_gpu
from penstock.doctor.finding import Finding, State, in_the_way, ok, worth_knowing
from penstock.machine import program

PACKAGE = Path(probes.__file__).resolve().parents[2]
NAMES = ["disk", "O_DIRECT", "disk speed", "memory", "swap", "memory limit", "cores", "limits", "huge pages", "memlock",
         "C library", "I/O", "torch", "GPU", "python", "penstock", "numpy", "libraries", "deepspeed", "program"]


def told(finding: Finding) -> str:
    """What it says; each but "ok" has a remedy, and what is in the way an exit code."""
    assert bool(finding.remedy) == (finding.state != State.OK), finding
    assert (finding.code in (2, 3, 4)) == (finding.state == State.IN_THE_WAY), finding
    return f"{finding.state.value}: {finding.seen} -> {finding.remedy}"


def root_of(tmp_path, files) -> str:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)


def test_it_looks_at_everything_and_leaves_nothing(tmp_path):
    (tmp_path / "here").mkdir()
    done = subprocess.run([sys.executable, "-m", "penstock", "doctor", "--json", "--dir", tmp_path / "here"], text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, cwd=tmp_path,
                          timeout=120)
    found = json.loads(done.stdout)["findings"]
    assert [each["name"] for each in found] == NAMES and not done.stderr, done.stderr
    assert {each["state"] for each in found} <= {state.value for state in State}
    assert all(bool(each["remedy"]) == (each["state"] != "ok") for each in found)
    assert done.returncode == next((each["code"] for each in found if each["state"] == "in the way"), 0)
    assert os.listdir(tmp_path) == ["here"] and os.listdir(tmp_path / "here") == []


def test_the_exit_code_is_that_of_the_first_thing_in_the_way(monkeypatch, capsys):
    found = [ok("one", "good"), worth_knowing("two", "so " * 60, "do this"), in_the_way("three", "bad", "do that", 4),
             in_the_way("four", "bad", "do more", 2)]
    asked = []
    monkeypatch.setattr(probes, "examine", lambda directory: asked.append(directory) or found)
    assert main(["doctor", "--dir", "/somewhere"]) == 4 and asked == ["/somewhere"]
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"one +ok +good$", lines[0]) and "   -> do that" in "\n".join(lines)
    assert lines[-1] == "2 in the way, 1 worth knowing, 1 ok" and max(map(len, lines)) <= 110
    assert verb.code_of(found[:2]) == 0


# ---------------------------------------------------------------- what may hang or crash

def probe_of_torch(tmp_path, text, monkeypatch, seconds=30.0):
    (tmp_path / "torch.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return [told(each) for each in probes.Probe("torch", []).found(seconds)]


@pytest.mark.parametrize("text, seen", [
    ("raise ModuleNotFoundError('no torch', name='torch')", 'not installed -> pip install "torch>=2.4"'),
    ("raise OSError('libcudart.so.12: cannot open')", "cannot be imported: OSError: libcudart.so.12: cannot open"),
    ("__version__ = '2.3.1+cu121'\nclass cuda: is_available = staticmethod(bool)\nclass version: cuda = None",
     '2.3.1+cu121, and the package takes 2.4 and later -> pip install "torch>=2.4"'),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process that looked was ended by SIGSEGV"),
    ("import os; print('noise'); os._exit(3)", "the process that looked ended with 3")])
def test_a_torch_that_is_missing_broken_old_or_ends_its_process_is_in_the_way(text, seen, tmp_path, monkeypatch):
    found = probe_of_torch(tmp_path, text, monkeypatch)
    assert found[0].startswith("in the way") and seen in found[0], found


def test_who_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    began = time.monotonic()
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(30)"
    found = probe_of_torch(tmp_path, deaf, monkeypatch, 2.0)
    assert "no answer within 2 s" in found[0] and time.monotonic() - began < 20


def test_torch_is_told_with_its_gpu(monkeypatch):
    class Torch:
        __version__ = "2.11.0+cpu"

        class version:
            cuda = None

        class cuda:
            is_available = staticmethod(bool)
    assert told(torch_and_gpu.gpu(Torch)) == "ok: none: models compute on the CPU -> "
    monkeypatch.setattr(torch_and_gpu, "text_of", lambda _: "NVRM version: NVIDIA Kernel Module  550.54.15  x")
    assert "worth knowing: driver 550.54.15, and torch 2.11.0+cpu finds none: it was built without CUDA" in \
        told(torch_and_gpu.gpu(Torch))
    Torch.version.cuda = "13.0"
    assert "nvidia-smi" in told(torch_and_gpu.gpu(Torch)) and "no torch to ask" in told(torch_and_gpu.gpu(None))
    assert torch_and_gpu.numbers_of("2.11.0+cpu") > torch_and_gpu.numbers_of("2.4")


# ---------------------------------------------------------------- the disk

def test_a_directory_that_is_none_is_in_the_way_and_nothing_is_made(tmp_path):
    (tmp_path / "file").touch()
    for name in ("absent", "file"):
        found = [told(each) for each in disk.look(str(tmp_path / name))]
        assert len(found) == 1 and "is no directory" in found[0] and "mkdir -p" in found[0]
    assert told(disk.look("/proc/1")[0]).startswith("in the way: /proc/1: ")  # where nobody makes files
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_system_is_that_of_the_longest_mount_point(tmp_path):
    root = root_of(tmp_path, {"proc/self/mountinfo": (
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:5 / /mnt rw shared:1 - overlay overlay rw\n"
        "31 27 0:6 / /mnt/nvme\\040one rw - xfs /dev/nvme0n1 rw\nbroken\n")})
    for place, kind in (("/mnt/nvme one/x", "xfs"), ("/mnt/nvme", "overlay"), ("/home", "ext4"), ("/mnt", "overlay")):
        assert disk.FileSystem.of(place, root).kind == kind
    assert disk.FileSystem.of("/x", str(tmp_path / "none")).kind == "an unknown file system"


@pytest.mark.parametrize("kind, state", [("ext4", "ok"), ("tmpfs", "worth knowing"), ("overlay", "worth knowing"),
                                         ("nfs4", "worth knowing")])
def test_what_a_file_system_means_is_said(kind, state, tmp_path, monkeypatch):
    monkeypatch.setattr(disk.FileSystem, "of", lambda _: disk.FileSystem(kind, "source"))
    monkeypatch.setattr(disk, "LITTLE_BYTES", 0)
    assert told(disk._room(str(tmp_path))).startswith(state)
    monkeypatch.setattr(disk, "LITTLE_BYTES", 1 << 60)
    assert "worth knowing" in told(disk._room(str(tmp_path)))


def test_a_disk_is_measured_also_through_the_page_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SECONDS", 0.01)
    found = disk.look(str(tmp_path))
    assert [each.name for each in found] == NAMES[:3] and re.search(r"\d GB/s written and \d.* read", told(found[2]))
    monkeypatch.setattr(disk, "_direct", lambda _: False)
    assert "page cache" in told(disk.look(str(tmp_path))[1])
    monkeypatch.setattr(disk.os, "O_TMPFILE", 1 << 30)  # which no kernel knows
    assert len(disk.look(str(tmp_path))) == 3 and os.listdir(tmp_path) == []
    monkeypatch.setattr(disk, "SLOW", 1e15)
    assert "penstock bench io" in told(disk.look(str(tmp_path))[2])


# ---------------------------------------------------------------- the machine

GROUPS = "4:memory,cpu:/job\n0::/pod\n"


def test_limits_of_control_groups_of_both_versions_are_found(tmp_path):
    free = "MemTotal: 25165824 kB\nMemAvailable: 20971520 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB\n"
    root = root_of(tmp_path, {"proc/meminfo": free, "proc/self/cgroup": GROUPS})
    assert told(machine.memory(root)) == "ok: 20 GiB of 24 GiB can be had (free RAM) -> "
    assert "512 MiB of 1 GiB used" in told(machine.swap(root)) and "no control group" in told(machine.group(root))
    root_of(tmp_path, {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{8 << 30}\n",
                       "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{7 << 30}\n",
                       "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                       "sys/fs/cgroup/pod/memory.max": f"{4 << 30}\n"})
    assert told(machine.memory(root)).startswith(
        "worth knowing: 1 GiB of 24 GiB can be had (cgroup limit /sys/fs/cgroup/memory/job")
    assert told(machine.group(root)) == ("ok: 8 GiB (/sys/fs/cgroup/memory/job/memory.limit_in_bytes), "
                                         "4 GiB (/sys/fs/cgroup/pod/memory.max) -> ")
    root_of(tmp_path, {"sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{8 << 30}\n"})
    assert machine.memory(root).code == 3 and "0 bytes of 24 GiB" in told(machine.memory(root))


@pytest.mark.parametrize("files, count", [
    ({"sys/fs/cgroup/pod/cpu.max": "150000 100000\n"}, 1.5), ({"sys/fs/cgroup/pod/cpu.max": "max 100000\n"}, None),
    ({"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n"}, None),
    ({"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "250000\n", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
      "sys/fs/cgroup/cpu.max": "500000 100000\n"}, 2.5)])
def test_a_quota_of_processors_is_found_and_torchs_threads_are_named(files, count, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    root = root_of(tmp_path, {"proc/self/cgroup": GROUPS, **files})
    found = told(machine.cores(root))
    assert found.startswith("ok") if count is None else f"time of {count} of them" in found and \
        f"export OMP_NUM_THREADS={2 if count == 1.5 else 3}" in found


@pytest.mark.parametrize("load, words", [("8.90", "ok"), ("9.00", "OMP_WAIT_POLICY=passive"), (None, "ok")])
def test_a_machine_that_is_busy_is_worth_knowing(load, words, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    root = root_of(tmp_path, {} if load is None else {"proc/loadavg": f"{load} 1.00 1.00 3/412 1234\n"})
    assert words in told(machine.cores(root))


def test_huge_pages_that_are_off_are_worth_knowing(tmp_path):
    place = "sys/kernel/mm/transparent_hugepage/enabled"
    for text, words in (("always [madvise] never\n", "ok: transparent ones: madvise"),
                        ("always madvise [never]\n", "echo madvise >"), ("", "CONFIG_TRANSPARENT_HUGEPAGE")):
        assert words in told(machine.huge_pages(root_of(tmp_path, {place: text})))
    root = root_of(tmp_path, {place: "[always] madvise never\n", "proc/self/status": "THP_enabled:\t0\n"})
    assert "PR_SET_THP_DISABLE" in told(machine.huge_pages(root))


def test_locked_memory_is_told_with_the_command_that_helps(tmp_path, monkeypatch):
    def limited(soft, hard):
        monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (soft, hard))
        return told(machine.locked(str(tmp_path)))
    endless = resource.RLIM_INFINITY
    assert limited(endless, endless) == "ok: unlimited (hard limit unlimited) -> "
    assert limited(8 << 20, endless).endswith("-> ulimit -l unlimited")
    assert "limits.conf" in limited(8 << 20, 8 << 20)
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/user").symlink_to(machine.FIRST_USER_NAMESPACE)
    (tmp_path / "proc/self/status").write_text("CapEff:\t0000000000004000\n")
    assert "CAP_IPC_LOCK" in limited(8 << 20, 8 << 20)


def test_limits_of_the_process_are_told_as_the_shell_has_them(monkeypatch):
    assert told(machine.limits()).startswith("ok")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: (1 << 30 if kind == resource.RLIMIT_AS else -1, -1))
    assert told(machine.limits()) == ("worth knowing: address space (ulimit -v): 1 GiB -> in the shell that starts the "
                                      "training: ulimit -v unlimited")


# ---------------------------------------------------------------- the library and the rest

WITHOUT_URING = """
import ctypes, sys
from ctypes import c_ubyte, c_uint, c_ushort
class Step(ctypes.Structure): _fields_ = [("code", c_ushort), ("yes", c_ubyte), ("no", c_ubyte), ("k", c_uint)]
class Filter(ctypes.Structure): _fields_ = [("count", c_ushort), ("steps", ctypes.POINTER(Step))]
# The number of the call; is it io_uring_setup? Then EPERM, else go on.
steps = (Step * 4)(Step(0x20, 0, 0, 0), Step(0x15, 0, 1, 425), Step(0x06, 0, 0, 0x50001), Step(0x06, 0, 0, 0x7fff0000))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Filter(4, steps)), 0, 0) == 0
from penstock.doctor import core_library
for each in core_library.look(sys.argv[1]): print(each.name, each.state.value, each.seen, "->", each.remedy)
"""


def without_uring(place, **variables):
    done = subprocess.run([sys.executable, "-c", WITHOUT_URING, place], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE), **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_the_library_it_says_why_and_asks_the_kernel(tmp_path):
    found = without_uring(tmp_path / "place", PENSTOCK_LIBRARY=str(tmp_path / "absent.so"))
    assert "C library in the way libpenstock_python.so is not at" in found
    assert "I/O worth knowing libaio or threads: io_uring_setup: Operation not permitted" in found
    (tmp_path / "broken.so").write_text("no library")
    found = without_uring(tmp_path / "place", PENSTOCK_LIBRARY=str(tmp_path / "broken.so"))
    assert "broken.so cannot be loaded" in found and not (tmp_path / "place").exists()
    assert told(core_library.of_the_kernel())


@pytest.mark.skipif(not NATIVE, reason="of the C library")
def test_io_goes_as_a_training_of_this_process_would_go(tmp_path):
    found = [told(each) for each in core_library.look(str(tmp_path / "place"))]
    assert found[0].startswith("ok: 0.1.0, ") and os.listdir(tmp_path) == []
    assert "kernel" in found[1]
    found = without_uring(tmp_path / "place")
    assert "I/O worth knowing libaio, kernel" in found and "io_uring cannot be used" in found
    assert "seccomp" in found and "sysctl -w kernel.io_uring_disabled=0" in found and os.listdir(tmp_path) == []
    (tmp_path / "file").touch()
    assert core_library.look(str(tmp_path / "file/place"))[1].code == 4


@pytest.mark.skipif(not NATIVE, reason="of the C library")
def test_the_loops_are_those_of_the_processor_and_slow_ones_are_told(monkeypatch):
    flags = core_library._features()
    fastest = "avx512" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= {*flags} else "avx2"
    assert f", loops {fastest if 'avx2' in flags else 'baseline'}, " in core_library.look()[0].seen
    monkeypatch.setattr(core_library, "_features", lambda: ["sse2", "avx2"])
    assert "ok: 0.1.0, loops avx2, " in told(core_library._told("0.1.0", "avx2"))
    assert "worth knowing: 0.1.0, loops baseline" in told(core_library._told("0.1.0", "baseline"))
    monkeypatch.setattr(core_library, "_features", lambda: ["fp", "asimd"])
    assert told(core_library._told("0.1.0", "baseline")).startswith("ok")


def test_the_program_is_told_with_its_version(tmp_path, monkeypatch):
    def with_program(text):
        (tmp_path / "program").write_text(text)
        (tmp_path / "program").chmod(0o755)
        return told(software.the_program())
    monkeypatch.setenv(program.VARIABLE, str(tmp_path / "program"))
    assert with_program(f"#!/bin/sh\necho penstock {software.version()}\n").startswith("ok: penstock")
    assert "beside the package" in with_program("#!/bin/sh\necho penstock 0.0.9\n")
    assert "does not run (libtorch.so: cannot open" in with_program(
        "#!/bin/sh\necho 'libtorch.so: cannot open' >&2\nexit 127\n")
    monkeypatch.setattr(program, "find", lambda: None)
    assert "none: train" in told(software.the_program()) and all(map(told, software.look()))


def test_a_deepspeed_that_is_installed_in_part_is_mended():
    """In a process of its own: where accelerate was imported before, the surface is not."""
    script = ("from penstock.deepspeed import install\nfrom penstock.doctor import software\n"
              "install.state = lambda _: \"Penstock's, in part: x is missing\"\nprint(software.deepspeed().remedy)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.strip() == "penstock deepspeed install"


def test_numpy_that_is_missing_is_in_the_way(monkeypatch):
    assert software.numpy().state == "ok"

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert software.numpy().state == "in the way" and software.numpy().remedy == "pip install numpy"


def test_a_drive_is_measured_with_as_many_blocks_at_once_as_is_said(tmp_path, monkeypatch):
    speed, = [each for each in disk.look(str(tmp_path)) if each.name == "disk speed"]
    assert f"{disk.DEPTH} blocks of 1 MiB at once" in speed.seen
    together = threading.Barrier(disk.DEPTH, timeout=10)
    moved = []

    def move(at):
        together.wait()
        moved.append(at)
        return disk.BLOCK
    monkeypatch.setattr(disk, "SECONDS", 60.0)
    assert disk._rate(move, lambda: None, disk.DEPTH * disk.BLOCK)[0] == disk.DEPTH * disk.BLOCK
    assert sorted(moved) == [turn * disk.BLOCK for turn in range(disk.DEPTH)]
