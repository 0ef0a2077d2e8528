"""The C library, and by it how I/O will go: it opens a store of one tile and asks which way it took, so that the
answer is the training's own (aio/backend/open_backend.cpp)."""
from __future__ import annotations

import ctypes
import os
import platform
import shutil
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

from ..errors import PenstockError
from ..native.library import library, library_of
from ..native.structs import Error
from ..version import version
from .finding import Finding, in_the_way, ok, worth_knowing

ABI, SCRATCH = 1, 1  # PENSTOCK_ABI_VERSION and PENSTOCK_SCRATCH of swap/capi/penstock.h
SYS_IO_URING_SETUP = 425  # of all architectures
ALLOW = ("as root: sysctl -w kernel.io_uring_disabled=0; of a container: a seccomp profile that allows io_uring_setup "
         "(docker run --security-opt seccomp=PROFILE)")


class Object(ctypes.Structure):
    """penstock_object"""

    _fields_ = [("name", c_char_p), ("bytes", c_uint64), ("tile_bytes", c_uint64)]


class Options(ctypes.Structure):
    """penstock_store_options"""

    _fields_ = [("struct_bytes", c_size_t), ("directories", POINTER(c_char_p)), ("directory_count", c_size_t),
                ("bandwidths", c_void_p), ("job", c_char_p), ("mode", c_int), ("durability", c_int), ("verify", c_int),
                ("objects", POINTER(Object)), ("object_count", c_size_t), ("object_struct_bytes", c_size_t),
                ("backend", c_int), ("caching", c_int), ("deadline_ms", c_uint64), ("progress", c_void_p),
                ("progress_user", c_void_p)]


def look(place: str = "") -> list[Finding]:
    """The library, and the way of I/O. `place`: a directory to make, which is removed again; without one, or without
    the library, the kernel is asked."""
    try:
        loaded = library_of("penstock.h", "penstock_abi_version", ABI)
        loaded.penstock_version.restype = loaded.penstock_session_loops.restype = c_char_p
        told, loops = ((call() or b"").decode() for call in (loaded.penstock_version, loaded.penstock_session_loops))
    except (PenstockError, AttributeError) as problem:
        remedy = "install the wheel again (pip install --force-reinstall --no-deps), or build the checkout: ./run build"
        return [in_the_way("C library", str(problem), remedy), of_the_kernel()]
    return [_told(told, loops), _way_of_io(loaded, place) if place else of_the_kernel()]


def _told(its_version: str, loops: str) -> Finding:
    seen = f"{its_version}, loops {loops}, {library()._name}"
    again = "build the checkout again, ./run build, or install one wheel"
    if version() not in (its_version, "unknown"):
        return worth_knowing("C library", f"{seen}, of the package {version()}", again)
    if loops == "baseline" and "avx2" in _features():
        return worth_knowing("C library", f"{seen}: slow ones, though this processor has AVX2", again)
    return ok("C library", seen)


def _features() -> list[str]:
    """Of the processor, in the kernel's words."""
    try:
        return Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []


def _way_of_io(loaded: ctypes.CDLL, place: str) -> Finding:
    try:
        way, notes = _opened(loaded, place)
    except PenstockError as problem:
        return in_the_way("I/O", str(problem), "name another directory: --dir DIRECTORY", 4)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seen = f"{way}, kernel {platform.release()}"
    if way == "io_uring":
        return ok("I/O", seen)
    told = "; ".join([seen, *notes])
    return worth_knowing("I/O", told, "ulimit -l unlimited" if "(ulimit -l)" in told else ALLOW)


def _opened(loaded: ctypes.CDLL, directory: str) -> tuple[str, list[str]]:
    """The name of the way, and what the store has to tell."""
    objects = (Object * 1)(Object(b"tile", 4096, 4096))
    directories = (c_char_p * 1)(os.fsencode(directory))
    options = Options(struct_bytes=ctypes.sizeof(Options), directories=directories, directory_count=1, job=b"doctor",
                      durability=SCRATCH, objects=objects, object_count=1, object_struct_bytes=ctypes.sizeof(Object),
                      deadline_ms=5000)
    store, error = c_void_p(), Error()
    if loaded.penstock_store_open(ctypes.byref(options), ctypes.byref(store), ctypes.byref(error)):
        raise PenstockError(error.message.decode(errors="replace"))
    loaded.penstock_backend_name.restype = loaded.penstock_note.restype = c_char_p
    notes: list[str] = []
    while (line := loaded.penstock_note(store, c_size_t(len(notes)))) is not None:
        notes.append(line.decode(errors="replace"))
    way = (loaded.penstock_backend_name(store) or b"").decode()
    loaded.penstock_store_close(store, ctypes.byref(error))
    return way, notes


def of_the_kernel() -> Finding:
    """What it says of io_uring."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(SYS_IO_URING_SETUP, 1, ctypes.create_string_buffer(256))
    if file >= 0:
        os.close(file)
        return ok("I/O", f"io_uring is allowed, kernel {platform.release()}")
    problem = os.strerror(ctypes.get_errno())
    return worth_knowing("I/O", f"libaio or threads: io_uring_setup: {problem}, kernel {platform.release()}", ALLOW)
